// Package serve is the rule that specifies a native server. Nothing runs here: a
// sample starts the server from the specification, so the specification is what
// keys and reports refer to.
package serve

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/engine/action"
	"assay/rules/bundle"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/rule"
	"assay/rules/internal/scripted"
	"assay/rules/internal/server"
	"assay/rules/internal/upstream"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Files of the output.
const (
	SpecFile     = "server.json" // a server.Spec
	ScriptFile   = "script.json"
	UpstreamFile = "upstream.json" // a server.Upstream
)

// Rule is the rule `serve`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "serve", Version: 1,
		Doc: "Specifies a native server for a bundle. It runs inside each sample.",
		Attrs: []schema.Attr{
			{Name: "bundle", Kind: schema.Label, Required: true, Rules: []string{"bundle"}, Doc: "What is served. With `url` it gives tokenizer, context and family only: what that server loaded is not ours to check."},
			{Name: "engine", Kind: schema.String, Default: server.LlamaCPP, Values: server.Engines,
				Doc: "`llama.cpp` calls the model in the worker's process, `llama.cpp-http` starts the engine's own HTTP server, with a slot for each lane, `openai-http` forwards to `url`."},
			{Name: "url", Kind: schema.String, Doc: "For `openai-http`: the base URL of a server that runs already, such as `http://127.0.0.1:9000`. It is never published."},
			{Name: "adapter", Kind: schema.String, Default: upstream.Adapters[0].Name, Values: upstream.Names(), Doc: "What kind of server is at `url` (docs/adapters.md). One that nobody has verified is said to be so in every row, and the row cannot be qualified."},
			{Name: "model", Kind: schema.String, Doc: "What the model is called at `url`; by default as in the bundle."},
			{Name: "runtime", Kind: schema.Label, Rules: []string{"python_env"}, Doc: "The Python environment of the engine: `llama.cpp` and `llama.cpp-http` need one with xllamacpp."},
			{Name: "script", Kind: schema.File, Doc: "Timing and faults of the `scripted` engine."},
			{Name: "replicas", Kind: schema.Int, Default: int64(1), Min: at(1), Max: at(64), Doc: "Lanes: requests served at the same time, each by a worker of its own; with `llama.cpp-http` and `openai-http` by the one engine."},
			{Name: "threads", Kind: schema.Int, Default: int64(1), Min: at(1), Max: at(1024), Doc: "Threads for each lane."},
			{Name: "prompt_cache", Kind: schema.Bool, Doc: "Whether the engine may reuse the work on an earlier prompt."},
			{Name: "request_timeout_seconds", Kind: schema.Float, Default: 120.0, Min: at(0.1), Max: at(1e6), Doc: "Limit of one request."},
			{Name: "startup_timeout_seconds", Kind: schema.Float, Default: 120.0, Min: at(0.1), Max: at(1e6), Doc: "Limit of loading the model."},
			{Name: "cancel_grace_seconds", Kind: schema.Float, Default: 2.0, Min: at(0.01), Max: at(1e6), Doc: "How long a cancelled generation may go on before its worker is replaced."},
			{Name: "max_body_bytes", Kind: schema.Int, Default: int64(1 << 20), Min: at(1), Max: at(32 << 20), Doc: "Largest request body."},
			{Name: "max_output_tokens", Kind: schema.Int, Default: int64(1024), Min: at(1), Max: at(1 << 24), Doc: "Largest answer that may be asked for."},
		},
		Check: check,
	},
	Class:   action.Pure,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func check(v map[string]any) []schema.Problem {
	engine, _ := v["engine"].(string)
	var problems []schema.Problem
	add := func(attr, format string, args ...any) {
		problems = append(problems, schema.Problem{Attr: attr, Message: fmt.Sprintf(format, args...)})
	}
	needs := func(attr string, engines ...string) {
		given := v[attr] != ""
		switch wanted := slices.Contains(engines, engine); {
		case wanted && !given:
			add(attr, "engine %q needs `%s`", engine, attr)
		case !wanted && given:
			add(attr, "`%s` goes with engine %s", attr, quoted(engines))
		}
	}
	needs("runtime", server.LlamaCPP, server.LlamaHTTP)
	needs("script", server.Scripted)
	needs("url", server.OpenAIHTTP)
	if v["model"] != "" && engine != server.OpenAIHTTP {
		add("model", "`model` goes with engine %q", server.OpenAIHTTP)
	}
	name, _ := v["adapter"].(string)
	if name != upstream.Adapters[0].Name && engine != server.OpenAIHTTP {
		add("adapter", "`adapter` goes with engine %q", server.OpenAIHTTP)
	}
	adapter, found := upstream.Find(name)
	if cache, _ := v["prompt_cache"].(bool); cache && found && engine == server.OpenAIHTTP && adapter.CacheMember == "" {
		add("prompt_cache", "adapter %q cannot tell its engine whether to use a prompt cache", name)
	}
	if text, _ := v["url"].(string); text != "" {
		if fault := upstream.CheckURL(text); fault != nil {
			add("url", "%v", fault)
		}
	}
	return problems
}

func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = strconv.Quote(name)
	}
	return strings.Join(list, " or ")
}

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	b, _ := c.Dep(t, "bundle")
	a.Deps = []action.Dep{{Role: "bundle", ID: b.Label.String(), Path: bundle.InfoFile}}
	if runtime, ok := c.Dep(t, "runtime"); ok {
		a.Deps = append(a.Deps, action.Dep{Role: "runtime", ID: runtime.Label.String()})
	}
	c.Source(a, t, "script")
	adapter := adapterOf(t)
	if adapter.Name != "" {
		// A specification says what the adapter was verified against.
		a.Tools["adapter"] = adapter.Name + " verified against " + adapter.Verified
	}
	var problems []schema.Problem
	if n := b.Int("tensor_parallel"); n != 1 {
		problems = append(problems, schema.Problem{Attr: "bundle",
			Message: fmt.Sprintf("%s has tensor_parallel = %d; engine %q serves on one device only", b.Label, n, t.String("engine"))})
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		var info bundle.Info
		if err := jsonfile.Read(run.Input("bundle"), &info); err != nil {
			return err
		}
		if file, ok := t.File("script"); ok {
			if err := copyScript(run, file); err != nil {
				return err
			}
		}
		if url := t.String("url"); url != "" {
			u := server.Upstream{URL: url, Model: cmp.Or(t.String("model"), info.Model)}
			if err := jsonfile.Write(filepath.Join(run.Out, UpstreamFile), u); err != nil {
				return err
			}
		}
		return jsonfile.Write(filepath.Join(run.Out, SpecFile), server.Spec{
			Version: 1, Engine: t.String("engine"), Adapter: adapter.Name, Verified: adapter.Verified, Model: info.Model, Endpoints: info.Tasks,
			Replicas: int(t.Int("replicas")), Threads: int(t.Int("threads")), Context: info.Context,
			PromptCache: t.Bool("prompt_cache"), RequestLimit: t.Float("request_timeout_seconds"),
			StartLimit: t.Float("startup_timeout_seconds"), CancelGrace: t.Float("cancel_grace_seconds"),
			MaxBodyBytes: t.Int("max_body_bytes"), MaxOutput: int(t.Int("max_output_tokens")),
		})
	}
	return problems
}

// adapterOf is the adapter of the engine, none for one that is a worker.
func adapterOf(t *graph.Target) upstream.Adapter {
	name := ""
	switch t.String("engine") {
	case server.LlamaHTTP:
		name = server.LlamaAdapter
	case server.OpenAIHTTP:
		name = t.String("adapter")
	}
	adapter, _ := upstream.Find(name)
	return adapter
}

// copyScript checks the script before any sample depends on it.
func copyScript(run *action.Run, file string) error {
	data, err := os.ReadFile(run.Input("script"))
	if err != nil {
		return err
	}
	if _, err := scripted.Parse(data); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(filepath.Join(run.Out, ScriptFile), data, 0o644)
}
