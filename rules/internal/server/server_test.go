package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"assay/rules/internal/gateway"
	"assay/rules/internal/upstream"
)

var placeholder = regexp.MustCompile(`\{[a-z.]+\}`)

// Every engine gives a configuration that the gateway takes, with lanes on the CPUs
// they are given, and commands without a placeholder that nobody fills.
func TestConfigure(t *testing.T) {
	for _, engine := range Engines {
		t.Run(engine, func(t *testing.T) {
			spec := Spec{Engine: engine, Model: "m", Endpoints: []string{"chat"}, Replicas: 2, Threads: 1, Context: 64,
				RequestLimit: 1, StartLimit: 1, CancelGrace: 1, MaxBodyBytes: 1 << 10, MaxOutput: 8}
			switch engine {
			case LlamaHTTP:
				spec.Adapter = LlamaAdapter
			case OpenAIHTTP:
				spec.Adapter = upstream.Adapters[0].Name
			}
			place := Place{Assay: "assay", Python: "python", Model: "model", Script: "script", Dir: t.TempDir(), Workers: []int{4, 5},
				Upstream: Upstream{URL: "http://127.0.0.1:9", Model: "theirs"}}
			path, err := configure(spec, place)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			config, err := gateway.ParseConfig(data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := gateway.New(config); err != nil {
				t.Error(err)
			}
			if left := placeholder.FindString(strings.ReplaceAll(string(data), "{port}", "")); left != "" {
				t.Errorf("%s is left in\n%s", left, data)
			}
			m := config.Models[0]
			switch engine {
			case LlamaCPP, Scripted:
				if len(m.Workers) != 2 || !slices.Equal(m.Workers[0].CPUs, []int{4}) || !slices.Equal(m.Workers[1].CPUs, []int{5}) {
					t.Errorf("workers %+v", m.Workers)
				}
			case LlamaHTTP:
				if u := m.Upstream; u == nil || u.Lanes != 2 || !slices.Equal(u.CPUs, []int{4, 5}) || !slices.Contains(u.Command, "{port}") {
					t.Errorf("upstream %+v", u)
				}
			case OpenAIHTTP:
				if u := m.Upstream; u == nil || u.Lanes != 2 || u.Model != "theirs" || u.Command != nil {
					t.Errorf("upstream %+v", u)
				}
			}
		})
	}
}
