package host

import (
	"testing"
	"testing/fstest"
)

func TestOutOfMemoryKills(t *testing.T) {
	for text, want := range map[string]int64{
		"nr_free_pages 7\noom_kill 3\nswap_ra 0\n": 3, "oom_kill x\n": 0, "nr_free_pages 7\n": 0, "": 0,
	} {
		if got := outOfMemoryKills(fstest.MapFS{"vmstat": {Data: []byte(text)}}); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := outOfMemoryKills(fstest.MapFS{}); got != 0 {
		t.Errorf("without the file: %d", got)
	}
}
