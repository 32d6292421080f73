// Package layout names what a cache directory holds. docs/engine.md says what of
// it may be deleted.
package layout

import (
	"path/filepath"

	"github.com/opencontainers/go-digest"
)

// Dir is a cache directory.
type Dir string

// Content is the content store, Records the store of results and samples.
func (d Dir) Content() string { return d.join("cas") }
func (d Dir) Records() string { return d.join("ac") }

// History holds a folder for each checkout, Logs one for each build.
func (d Dir) History() string { return d.join("history") }
func (d Dir) Logs() string    { return d.join("log") }

// Work holds the action directories of running builds.
func (d Dir) Work() string { return d.join("work") }

// Wheels and UVCache are downloads, Environments what is made of them.
func (d Dir) Wheels() string       { return d.join("download", "wheels") }
func (d Dir) UVCache() string      { return d.join("download", "uv") }
func (d Dir) Environments() string { return d.join("env") }

// Locks holds the lock of each key that was ever built.
func (d Dir) Locks() string { return d.join("lock") }

// InUse is the lock that everything which uses the stores shares, and that is
// acquired by what removes something from them.
func (d Dir) InUse() string { return d.join("in-use.lock") }

// Checkout names the folder of a workspace in History. Results belong to
// everybody; what "why" knows belongs to a checkout.
func Checkout(workspace string) string { return digest.FromString(workspace).Encoded()[:16] }

func (d Dir) join(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}
