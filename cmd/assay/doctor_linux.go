package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileSystems are those that people have caches on, by the numbers of statfs(2).
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.TMPFS_MAGIC: "tmpfs", unix.NFS_SUPER_MAGIC: "nfs",
}

// Space below which a cache is short, and too short for one build, in bytes.
const (
	shortSpace = 5 << 30
	noSpace    = 200 << 20
)

func fileSystem(dir string) (verdict, text string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return warn, err.Error()
	}
	kind, known := fileSystems[int64(st.Type)]
	if !known {
		kind = fmt.Sprintf("file system %#x", st.Type)
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	text = fmt.Sprintf("on %s, %s free", kind, size(free))
	switch {
	case free < noSpace:
		return fail, text + "; free some: assay cache gc"
	case free < shortSpace:
		return warn, text + "; a model and two environments take some GiB: assay cache gc frees some"
	case kind == "tmpfs":
		return warn, text + ": samples are gone after a restart; put ASSAY_CACHE on a disk"
	case kind == "nfs":
		return warn, text + ": locks depend on the server; keep one machine per cache"
	}
	return fine, text
}

// namespaces tries whether an unprivileged process may have a network of its own.
func namespaces(ctx context.Context) (verdict, text string) {
	self, err := os.Executable()
	if err != nil {
		return warn, err.Error()
	}
	cmd := exec.CommandContext(ctx, self, "--help")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return warn, fmt.Sprintf("a network of its own is not permitted to a process here (%v): a replay cannot prove that it used none", err)
	}
	return fine, "a process may have a network of its own"
}
