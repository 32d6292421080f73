// Package rule is what the rules have in common: a schema, and an analysis that
// turns a target into an action.
package rule

import (
	"path"
	"path/filepath"

	"assay/engine/action"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Rule is one kind of stage.
type Rule struct {
	Schema *schema.Rule
	Class  action.Class
	// Analyze declares the action of a target: inputs, tools, code. It reads at
	// most small source files, and reports every problem it can find.
	Analyze func(*Context, *graph.Target, *action.Action) []schema.Problem
	// Owns names the folder of the workspace that a target writes, if it does. No
	// two targets may own the same folder, or one within another's.
	Owns func(*graph.Target) string
}

// Context is what analysis may use.
type Context struct {
	// Workspace is the absolute directory of the workspace.
	Workspace string
	Graph     *graph.Graph
	Host      Host
}

// Host tells where this machine keeps what is not in the content store.
type Host struct {
	// Wheels holds downloaded wheels by digest, Environments the Python
	// environments made from locks; both can be made again.
	Wheels, Environments, UVCache string
	// Python is the interpreter that runs pip and is the base of environments.
	Python string
}

// Path is the absolute path of a workspace file.
func (c *Context) Path(file string) string {
	return filepath.Join(c.Workspace, filepath.FromSlash(file))
}

// Dep returns the target that a Label attribute names. Kinds were checked when
// the graph was finalized, so a missing one is an absent optional attribute.
func (c *Context) Dep(t *graph.Target, attr string) (*graph.Target, bool) {
	label, ok := t.LabelOf(attr)
	if !ok {
		return nil, false
	}
	return c.Graph.Target(label)
}

// Source declares a File attribute as an input with the role of the attribute.
func (c *Context) Source(a *action.Action, t *graph.Target, attr string) {
	if file, ok := t.File(attr); ok {
		a.Sources = append(a.Sources, action.Source{Role: attr, Path: c.Path(file)})
	}
}

// SourceList declares a FileList attribute: each file has the role
// "attr/basename".
func (c *Context) SourceList(a *action.Action, t *graph.Target, attr string) {
	for _, file := range t.Files(attr) {
		a.Sources = append(a.Sources, action.Source{Role: attr + "/" + path.Base(file), Path: c.Path(file)})
	}
}
