// Package aiperfrun is the rule that measures: one sample is one supervised
// process tree in which the real AIPerf drives the real server. Its output holds
// the client's exports, the server's records and what was observed meanwhile.
package aiperfrun

import (
	"context"
	"fmt"

	"assay/engine/action"
	"assay/engine/supervise"
	"assay/rules/family"
	"assay/rules/internal/host"
	"assay/rules/internal/measured"
	"assay/rules/internal/rule"
	"assay/rules/pythonenv"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Client is the package that must be in the client environment.
const Client = "aiperf"

// Rule is the rule `aiperf_run`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "aiperf_run", Version: 1,
		Doc: "Measures a server with AIPerf: immutable samples of one workload.",
		Attrs: []schema.Attr{
			{Name: "server", Kind: schema.Label, Required: true, Rules: []string{"serve"}, Doc: "The server to start in each sample."},
			{Name: "client", Kind: schema.Label, Required: true, Rules: []string{"python_env"}, Doc: "The environment with AIPerf."},
			{Name: "endpoint", Kind: schema.String, Required: true, Values: []string{"chat", "completions"}, Doc: "The endpoint that is driven."},
			{Name: "streaming", Kind: schema.Bool, Doc: "Whether answers are streamed; needed for TTFT and ITL."},
			{Name: "input_tokens", Kind: schema.Int, Default: int64(32), Min: at(1), Doc: "Tokens of each synthetic prompt, without the chat template's."},
			{Name: "output_tokens", Kind: schema.Int, Default: int64(16), Min: at(1), Doc: "Most tokens of each answer."},
			{Name: "concurrency", Kind: schema.Int, Default: int64(1), Min: at(1), Doc: "Requests in flight, in a closed loop."},
			{Name: "requests", Kind: schema.Int, Default: int64(20), Min: at(1), Doc: "Measured requests of each sample."},
			{Name: "warmup_requests", Kind: schema.Int, Default: int64(3), Min: at(0), Doc: "Requests before the measured ones; in the ledger, in no figure."},
			{Name: "seed", Kind: schema.Int, Default: int64(1), Min: at(0), Doc: "Seed of the synthetic prompts."},
			{Name: "samples", Kind: schema.Int, Default: int64(1), Min: at(1), Max: at(100), Doc: "Samples wanted.",
				NotInKey: "how many samples are wanted does not change any of them"},
			{Name: "request_timeout_seconds", Kind: schema.Float, Default: 120.0, Min: at(0.1), Doc: "The client's limit of one request."},
			{Name: "deadline_seconds", Kind: schema.Float, Default: 1800.0, Min: at(1), Doc: "Limit of one sample; a sample that reaches it is rejected.",
				NotInKey: "a scheduling deadline: it ends a sample, it does not change one"},
		},
	},
	Class:   action.Measurement,
	Analyze: analyze,
}

func at(x float64) *float64 { return &x }

func analyze(c *rule.Context, t *graph.Target, a *action.Action) []schema.Problem {
	server, _ := c.Dep(t, "server")
	client, _ := c.Dep(t, "client")
	bundle, _ := c.Dep(server, "bundle")
	fam, _ := c.Dep(bundle, "family")
	a.Deps = []action.Dep{
		{Role: "server", ID: server.Label.String()},
		{Role: "bundle", ID: bundle.Label.String()},
		{Role: "family", ID: fam.Label.String(), Path: family.ServingDir},
		{Role: "client", ID: client.Label.String()},
	}
	if runtime, ok := c.Dep(server, "runtime"); ok {
		a.Deps = append(a.Deps, action.Dep{Role: "runtime", ID: runtime.Label.String()})
	}
	a.Tools = map[string]string{"measured_path": measured.Version}
	a.Samples = int(t.Int("samples"))

	var problems []schema.Problem
	w := workload(t)
	if !(family.Serving{Tasks: fam.Strings("tasks")}).Has(w.Endpoint) {
		problems = append(problems, schema.Problem{Attr: "endpoint",
			Message: fmt.Sprintf("%q is unsupported: family %s has the tasks %q", w.Endpoint, fam.Label, fam.Strings("tasks"))})
	}
	if lock, lockProblems := pythonenv.Lock(c, client); lockProblems == nil {
		if len(lock.Package(Client)) == 0 {
			problems = append(problems, schema.Problem{Attr: "client", Message: fmt.Sprintf("the lock of %s does not contain %s", client.Label, Client)})
		}
	} // a broken lock is reported by its own target

	threads := int(server.Int("threads") * server.Int("replicas"))
	a.Environment = func() (map[string]string, error) {
		cpus, err := split(threads)
		if err != nil {
			return nil, err
		}
		return host.Observe(cpus.Allowed).Environment(len(cpus.Server), len(cpus.Client)), nil
	}
	a.Run = func(ctx context.Context, run *action.Run) error {
		s := sampler{host: c.Host, workspace: c.Workspace, workload: w, threads: threads, deadline: seconds(t.Float("deadline_seconds"))}
		return s.run(ctx, run)
	}
	return problems
}

// CPUs are the sets that the server and the load generator may use. The gateway
// belongs to the load generator's set: it is not what is measured.
type CPUs struct {
	Allowed int   `json:"allowed"`
	Server  []int `json:"server"`
	Client  []int `json:"client"`
	// Shared says that the machine has too few for disjoint sets.
	Shared bool `json:"shared"`
}

func split(serverThreads int) (CPUs, error) {
	allowed, err := supervise.AllowedCPUs()
	if err != nil {
		return CPUs{}, err
	}
	server, client, shared, err := host.Split(allowed, serverThreads)
	return CPUs{Allowed: len(allowed), Server: server, Client: client, Shared: shared}, err
}
