package serve

import (
	"maps"
	"slices"
	"testing"

	"assay/rules/internal/server"
)

// Every attribute goes with its engine, and all that does not is told at once.
func TestCheck(t *testing.T) {
	url := map[string]any{"engine": server.OpenAIHTTP, "url": "http://127.0.0.1:9"}
	for name, c := range map[string]struct {
		attrs map[string]any
		want  []string // the attributes that are wrong
	}{
		"in-process":         {map[string]any{"runtime": "//env"}, nil},
		"started":            {map[string]any{"engine": server.LlamaHTTP, "runtime": "//env", "prompt_cache": true}, nil},
		"at a URL":           {url, nil},
		"of another kind":    {with(url, "adapter", "trtmc-server"), nil},
		"cache by adapter":   {with(with(url, "adapter", "llama-server"), "prompt_cache", true), nil},
		"cache without":      {with(url, "prompt_cache", true), []string{"prompt_cache"}},
		"all of another one": {with(with(with(url, "engine", server.Scripted), "adapter", "llama-server"), "model", "m"), []string{"script", "url", "model", "adapter"}},
		"credentials":        {with(url, "url", "http://me:secret@host"), []string{"url"}},
	} {
		attrs := map[string]any{"engine": server.LlamaCPP, "adapter": "openai", "runtime": "", "script": "", "url": "", "model": "", "prompt_cache": false}
		maps.Copy(attrs, c.attrs)
		var got []string
		for _, p := range check(attrs) {
			got = append(got, p.Attr)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func with(attrs map[string]any, name string, value any) map[string]any {
	attrs = maps.Clone(attrs)
	attrs[name] = value
	return attrs
}
