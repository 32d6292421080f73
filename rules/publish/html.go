package publish

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"assay/rules/internal/ledger"
	"assay/rules/internal/metrics"
)

// page is what report.html shows: the results, and drawings of the ledgers.
type page struct {
	Results
	Rows []pageRow
}

type pageRow struct {
	Row
	Number        int // from 1, as in the names of the ledgers
	Distributions []distribution
	Samples       []pageSample
}

type pageSample struct {
	Sample
	Timeline timeline
}

// writeHTML writes report.html: one file that needs nothing else, no script and
// no network. ledgers holds the entries of each row's samples.
func writeHTML(w io.Writer, r Results, ledgers [][][]ledger.Entry) error {
	p := page{Results: r}
	for i, row := range r.Rows {
		drawn := pageRow{Row: row, Number: i + 1}
		for _, f := range drawnFigures {
			drawn.Distributions = append(drawn.Distributions, f.draw(row, ledgers[i]))
		}
		for k, s := range row.Samples {
			drawn.Samples = append(drawn.Samples, pageSample{s, newTimeline(ledgers[i][k])})
		}
		p.Rows = append(p.Rows, drawn)
	}
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, "report.html", p); err != nil {
		return fmt.Errorf("report.html: %w", err)
	}
	_, err := w.Write(bytes.Map(printable, out.Bytes()))
	return err
}

// printable replaces what no HTML or XML text may hold. A server's words can
// hold anything.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' || r&0xfffe == 0xfffe {
		return utf8.RuneError
	}
	return r
}

//go:embed html
var sources embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"account":      account,
	"asked":        asked,
	"classes":      func() []ledger.Class { return ledger.Classes },
	"chatSheet":    chatSheet,
	"chatText":     chatText,
	"cellTexts":    cellTexts,
	"command":      command,
	"count":        count,
	"figures":      shown,
	"good":         func(g *metrics.Goodput) string { return good(*g) },
	"interval":     interval,
	"kneeText":     kneeText,
	"list":         list,
	"loadCurve":    newLoadCurve,
	"mean":         mean,
	"number":       number,
	"orNone":       orNone,
	"percent":      percent,
	"powerMeans":   func() string { return powerMeans },
	"phases":       func() []ledger.Phase { return ledger.Phases },
	"provenance":   provenance,
	"purpose":      purpose,
	"quantile":     quantile,
	"refused":      refused,
	"repeated":     repeated,
	"replaySheets": replaySheets,
	"replayText":   replayText,
	"share":        share,
	"spans":        spans,
	"strips":       strips,
	"tally":        tally[ledger.Reason],
	"value":        value,
	"words":        func(name any) string { return words(fmt.Sprint(name)) },
}).ParseFS(sources, "html/*"))

// words makes text of an identifier.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// span is a piece of text; code is set apart.
type span struct {
	Text string
	Code bool
}

// spans splits text at its backticks.
func spans(text string) []span {
	var list []span
	for i, part := range strings.Split(text, "`") {
		if part != "" {
			list = append(list, span{part, i%2 == 1})
		}
	}
	return list
}

// command writes arguments as a shell reads them back.
func command(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`*?[]()<>|&;#~!") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted[i] = arg
	}
	return strings.Join(quoted, " ")
}
