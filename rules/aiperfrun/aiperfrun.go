// Package aiperfrun is the rule that measures: one sample is one supervised
// process tree in which the real AIPerf drives the real server. Its output holds
// the client's exports, the server's records and what was observed meanwhile.
package aiperfrun

import (
	"context"
	"fmt"

	"assay/engine/action"
	"assay/rules/family"
	"assay/rules/internal/host"
	"assay/rules/internal/measured"
	"assay/rules/internal/rule"
	"assay/rules/internal/testbed"
	"assay/rules/pythonenv"
	"assay/starlark/graph"
	"assay/starlark/schema"
)

// Client is the package that must be in the client environment.
const Client = "aiperf"

// clientRole is the role of the client environment among the inputs.
const clientRole = "client"

// Rule is the rule `aiperf_run`.
var Rule = rule.Rule{
	Schema: &schema.Rule{
		Name: "aiperf_run", Version: 1,
		Doc: "Measures a server with AIPerf: immutable samples of one workload.",
		Attrs: []schema.Attr{
			{Name: "server", Kind: schema.Label, Required: true, Rules: []string{"serve"}, Doc: "The server to start in each sample."},
			{Name: "client", Kind: schema.Label, Required: true, Rules: []string{"python_env"}, Doc: "The environment with AIPerf."},
			{Name: "requires", Kind: schema.Label, Rules: []string{"validate_family"},
				Doc: "The validation that must have passed: without it no sample is made. Each sample opens with its prompts, and the answers must be the same."},
			{Name: "after", Kind: schema.Label, Rules: []string{"stop_rule"},
				Doc: "The stop rule that decides whether this run is needed: it waits for the decision, and is skipped if that is to stop."},
			{Name: "dataset", Kind: schema.Label, Rules: []string{"conversations", "trace"},
				Doc: "What is sent, instead of synthetic prompts: then how many tokens and requests there are is the data set's to say."},
			{Name: "warmup_conversations", Kind: schema.Int, Min: at(0), Max: at(1e6), Doc: "How many conversations of the data set, its first, are sent before the measured ones."},
			{Name: "endpoint", Kind: schema.String, Required: true, Values: []string{"chat", "completions"}, Doc: "The endpoint that is driven."},
			{Name: "streaming", Kind: schema.Bool, Doc: "Whether answers are streamed; needed for TTFT and ITL."},
			{Name: "input_tokens", Kind: schema.Int, Default: presets["input_tokens"], Min: at(1), Max: at(1 << 24), Doc: "Tokens of each synthetic prompt, without the chat template's."},
			{Name: "output_tokens", Kind: schema.Int, Default: presets["output_tokens"], Min: at(1), Max: at(1 << 24), Doc: "Most tokens of each answer."},
			{Name: "concurrency", Kind: schema.Int, Default: int64(1), Min: at(1), Max: at(1 << 16), Doc: "Requests in flight, in a closed loop."},
			{Name: "request_rate", Kind: schema.Float, Min: at(0), Max: at(1e5), Doc: "Requests per second; 0 is a closed loop, which sends when an answer came. `concurrency` then limits the requests in flight."},
			{Name: "arrival", Kind: schema.String, Default: "constant", Values: []string{"constant", "poisson"}, Doc: "How requests arrive at a request rate."},
			{Name: "requests", Kind: schema.Int, Default: presets["requests"], Min: at(1), Max: at(1e7), Doc: "Measured requests of each sample."},
			{Name: "warmup_requests", Kind: schema.Int, Default: presets["warmup_requests"], Min: at(0), Max: at(1e7), Doc: "Requests before the measured ones; in the ledger, in no figure."},
			{Name: "seed", Kind: schema.Int, Default: presets["seed"], Min: at(0), Max: at(1<<53 - 1), Doc: "Seed of the synthetic prompts."},
			{Name: "samples", Kind: schema.Int, Default: int64(1), Min: at(1), Max: at(100), Doc: "Samples wanted.",
				NotInKey: "how many samples are wanted does not change any of them"},
			{Name: "request_timeout_seconds", Kind: schema.Float, Default: 120.0, Min: at(0.1), Max: at(1e6), Doc: "The client's limit of one request."},
			{Name: "deadline_seconds", Kind: schema.Float, Default: 1800.0, Min: at(1), Max: at(1e6), Doc: "Limit of one sample; a sample that reaches it is rejected.",
				NotInKey: "a scheduling deadline: it ends a sample, it does not change one"},
		},
		Check: checkDataset,
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
	a.Deps = append(testbed.Deps(c, server), action.Dep{Role: clientRole, ID: client.Label.String()})
	var problems []schema.Problem
	if validation, ok := c.Dep(t, "requires"); ok {
		a.Deps = append(a.Deps, action.Dep{Role: validationRole, ID: validation.Label.String(), Gate: true})
		if len(validation.Strings("cases")) > 0 {
			problems = append(problems, schema.Problem{Attr: "requires", Message: fmt.Sprintf("%s judges by some cases only; what requires a verdict requires all of them", validation.Label)})
		}
		if judged, _ := c.Dep(validation, "server"); judged.Label != server.Label {
			problems = append(problems, schema.Problem{Attr: "requires",
				Message: fmt.Sprintf("%s judges %s, this run measures %s; a verdict holds for the server that it was made with", validation.Label, judged.Label, server.Label)})
		}
	}
	if after, ok := c.Dep(t, "after"); ok {
		a.Deps = append(a.Deps, action.Dep{ID: after.Label.String(), Stop: true})
	}
	a.Tools = map[string]string{"measured_path": measured.Key}
	a.Samples = int(t.Int("samples"))

	w := workload(t)
	if data, ok := c.Dep(t, "dataset"); ok {
		a.Deps = append(a.Deps, action.Dep{Role: datasetRole, ID: data.Label.String()})
		switch data.Rule.Name {
		case "trace":
			problems = append(problems, checkTrace(c, t, data, bundle)...)
		case "conversations":
			problems = append(problems, checkConversations(c, t, data, bundle)...)
		}
	}
	if !(family.Serving{Tasks: fam.Strings("tasks")}).Has(w.Endpoint) {
		problems = append(problems, schema.Problem{Attr: "endpoint",
			Message: fmt.Sprintf("%q is unsupported: family %s has the tasks %q", w.Endpoint, fam.Label, fam.Strings("tasks"))})
	}
	if limit := server.Int("max_output_tokens"); w.OutputTokens > limit {
		problems = append(problems, schema.Problem{Attr: "output_tokens", Message: fmt.Sprintf("%d is more than max_output_tokens = %d of %s", w.OutputTokens, limit, server.Label)})
	}
	if window := bundle.Int("context"); w.Dataset == nil && w.InputTokens+w.OutputTokens > window {
		problems = append(problems, schema.Problem{Attr: "input_tokens", Message: fmt.Sprintf("%d input and %d output tokens do not fit the context of %d of %s", w.InputTokens, w.OutputTokens, window, bundle.Label)})
	}
	if lock, lockProblems := pythonenv.Lock(c, client); lockProblems == nil {
		if len(lock.Package(Client)) == 0 {
			problems = append(problems, schema.Problem{Attr: "client", Message: fmt.Sprintf("the lock of %s does not contain %s", client.Label, Client)})
		}
	} // a broken lock is reported by its own target

	plan := testbed.NewPlan(c, server)
	plan.Record[clientRole] = client.Strings("record")
	a.Environment = func() (map[string]string, error) {
		cpus, err := testbed.Split(plan.Threads)
		if err != nil {
			return nil, err
		}
		return host.Observe(cpus.Allowed).Environment(len(cpus.Server), len(cpus.Client), cpus.Shared), nil
	}
	_, validated := c.Dep(t, "requires")
	a.Run = func(ctx context.Context, run *action.Run) error {
		s := sampler{plan: plan, validated: validated, workspace: c.Workspace, workload: w, deadline: seconds(t.Float("deadline_seconds"))}
		return s.run(ctx, run)
	}
	return problems
}
