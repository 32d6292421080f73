package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// faultyProxy is the program faultyproxy FAULTS COMMAND ARG…: it runs a load
// generator, and stands between it and the server that its --url names. FAULTS is
// "3=hold,5=close": what to do to which request, counted from 1.
//
//	hold    gives the answer when all of it is there, as a buffering proxy does
//	resend  sends the request twice and gives the second answer
//	close   closes the connection instead of an answer; the server sees nothing
//	rename  leaves the request's id out
//	cut     ends the answer after its first content, as if that were all of it
//	think   says that the text is reasoning
//	touch   makes the file $TOUCH.N before it answers request N
//	stall   stops the load generator's workers for two seconds
//	int     interrupts the load generator, as Ctrl-C does
//
// With entries=N the load generator has only N prompts.
func faultyProxy() {
	code, err := runBehindProxy(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "faultyproxy:", err)
		code = 1
	}
	os.Exit(code)
}

func runBehindProxy(faults string, command []string) (code int, err error) {
	value := func(flag string) *string { return &command[slices.Index(command, flag)+1] }
	url := value("--url")
	cmd := exec.Command(command[0], command[1:]...)
	p := &proxy{upstream: *url, faults: map[int64]string{}, generator: cmd}
	for _, fault := range strings.Split(faults, ",") {
		which, what, _ := strings.Cut(fault, "=")
		if which == "entries" {
			*value("--num-dataset-entries") = what
			continue
		}
		n, err := strconv.ParseInt(which, 10, 64)
		if err != nil {
			return 0, err
		}
		p.faults[n] = what
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	*url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: p}
	go server.Serve(listener)
	defer server.Close()
	cmd.Args, cmd.Stdout, cmd.Stderr = command, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

type proxy struct {
	upstream  string
	faults    map[int64]string
	posts     atomic.Int64
	generator *exec.Cmd
}

// The connections to the server are new ones, so that nothing of what the server
// sees is this client's doing.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n int64 // 0 for what is no request to the model
	if r.Method == http.MethodPost {
		n = p.posts.Add(1)
	}
	fault := p.faults[n]
	body, err := io.ReadAll(r.Body)
	if err != nil || fault == "close" {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	switch fault {
	case "touch":
		os.WriteFile(fmt.Sprintf("%s.%d", os.Getenv("TOUCH"), n), nil, 0o644)
	case "stall":
		go stall(p.generator.Process.Pid)
	case "int":
		p.generator.Process.Signal(os.Interrupt)
	}
	send := func() *http.Response {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, p.upstream+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		req.Header = r.Header.Clone()
		if fault == "rename" {
			req.Header.Del("X-Request-ID")
		}
		resp, err := direct.Do(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return resp
	}
	if fault == "resend" {
		first := send()
		io.Copy(io.Discard, first.Body)
		first.Body.Close()
	}
	resp := send()
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	switch fault {
	case "hold", "cut", "think":
		answer, _ := io.ReadAll(resp.Body)
		w.Write(spoil(fault, answer))
	default:
		relay(w, resp.Body)
	}
}

func spoil(fault string, answer []byte) []byte {
	switch fault {
	case "cut":
		const events = 2 // the role and the first content
		parts := bytes.SplitAfterN(answer, []byte("\n\n"), events+1)
		return bytes.Join(parts[:min(events, len(parts))], nil)
	case "think":
		return bytes.ReplaceAll(answer, []byte(`"content":`), []byte(`"reasoning_content":`))
	}
	return answer
}

// relay passes on what comes as it comes.
func relay(w http.ResponseWriter, from io.Reader) {
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.Write(buf[:n])
		flush.Flush()
		if err != nil {
			return
		}
	}
}

// stall stops the workers below a process for a while. AIPerf's processes name
// themselves by their service.
func stall(pid int) {
	workers := slices.DeleteFunc(below(pid), func(pid int) bool {
		title, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return !bytes.HasPrefix(title, []byte("aiperf worker"))
	})
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, pid := range workers {
			syscall.Kill(pid, signal)
		}
		time.Sleep(2 * time.Second)
	}
}

// below lists the descendants of a process.
func below(pid int) (all []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range threads {
		list, _ := os.ReadFile(name)
		for _, child := range strings.Fields(string(list)) {
			n, _ := strconv.Atoi(child)
			all = append(append(all, n), below(n)...)
		}
	}
	return all
}
