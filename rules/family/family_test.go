package family

import (
	"strings"
	"testing"
)

func TestTasks(t *testing.T) {
	for _, c := range []struct {
		tasks []string
		want  string
	}{
		{[]string{"chat"}, ""},
		{[]string{"completions", "chat"}, ""},
		{[]string{}, "a family has at least one task"},
		{[]string{"chat", "chat"}, `"chat" is there twice`},
		{[]string{"sing"}, `"sing" is not a task; the tasks are ["chat" "completions"]`},
	} {
		var got []string
		for _, p := range Rule.Schema.Check(map[string]any{"tasks": c.tasks}) {
			got = append(got, p.Message)
		}
		if all := strings.Join(got, "; "); (all == "") != (c.want == "") || !strings.Contains(all, c.want) {
			t.Errorf("%q: %q, want %q", c.tasks, all, c.want)
		}
	}
}
