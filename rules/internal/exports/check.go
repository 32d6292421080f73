package exports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"assay/rules/internal/aiperf"
	"assay/rules/internal/jsonl"
	"assay/rules/internal/ledger"
)

// Check is one question that tells whether the files are of one run.
type Check struct {
	Question string `json:"question"`
	// Holds is nil if the files do not say.
	Holds  *bool  `json:"holds"`
	Detail string `json:"detail"`
}

// witness sees every record on its way into the ledger and keeps what the checks
// need.
type witness struct {
	ids                map[string]seen
	sent               map[string]*extent // by phase
	cut                int                // requests of which the export has only a part
	doubles            int                // ordinals of a phase that two requests have
	ordinals           map[ordinal]bool
	conversations      map[string]bool
	successes, answers int
	latencySum         float64 // ms, of AIPerf's successes among the measured
	figuresRead        bool
}

type ordinal struct {
	phase string
	n     int64
}

// seen says where an id is.
type seen uint8

const (
	inRaw seen = 1 << iota
	inFigures
)

// extent is when the requests of a phase were under way, by the wall clock.
type extent struct {
	requests           int
	first, start, last int64 // Unix ns: first credit, first start, last end
}

func newWitness() *witness {
	return &witness{ids: map[string]seen{}, sent: map[string]*extent{}, ordinals: map[ordinal]bool{}, conversations: map[string]bool{}}
}

func (w *witness) requests(all iter.Seq2[*aiperf.Request, error]) iter.Seq2[*aiperf.Request, error] {
	return func(yield func(*aiperf.Request, error) bool) {
		for x, err := range all {
			var gap *aiperf.Gap
			switch {
			case err == nil:
				w.request(x)
			case errors.As(err, &gap):
				w.cut++
				w.ids[gap.ID] |= inRaw
			}
			if !yield(x, err) {
				return
			}
		}
	}
}

func (w *witness) request(x *aiperf.Request) {
	w.ids[x.ID] |= inRaw
	w.conversations[x.ConversationID] = true
	place := ordinal{x.Phase, x.SessionNum}
	if w.ordinals[place] {
		w.doubles++
	}
	w.ordinals[place] = true
	e := w.sent[x.Phase]
	if e == nil {
		e = &extent{first: x.StartWallNS, start: x.StartWallNS, last: x.StartWallNS}
		w.sent[x.Phase] = e
	}
	e.requests++
	e.start = min(e.start, x.StartWallNS)
	e.first = min(e.first, x.StartWallNS)
	if x.CreditWallNS != nil {
		e.first = min(e.first, *x.CreditWallNS)
	}
	if x.EndWallNS != nil {
		e.last = max(e.last, *x.EndWallNS)
	}
}

// figures passes AIPerf's figures on. They only add estimates to the ledger, so
// it goes on without those that cannot be read; unread hears why.
func (w *witness) figures(ctx context.Context, all iter.Seq2[aiperf.Figures, error], unread func(error)) iter.Seq2[aiperf.Figures, error] {
	return func(yield func(aiperf.Figures, error) bool) {
		damaged := false
		for x, err := range all {
			switch {
			case err == nil:
				w.figure(x)
			case errors.As(err, new(*jsonl.CorruptError)):
				unread(err)
				damaged = true
				continue
			case !errors.As(err, new(*aiperf.Gap)) && ctx.Err() == nil:
				unread(err)
				return
			}
			if !yield(x, err) {
				return
			}
		}
		w.figuresRead = !damaged
	}
}

func (w *witness) figure(x aiperf.Figures) {
	w.ids[x.ID] |= inFigures
	w.answers++
	if x.Phase == aiperf.Profiling && x.Error == nil && x.LatencyMS != nil {
		w.successes++
		w.latencySum += *x.LatencyMS
	}
}

// check asks all questions. What is contradicted, and what is missing, becomes a
// finding.
func (r *Run) check(w *witness, s ledger.Summary) []Check {
	checks := []Check{
		r.sameRequests(w), r.sameLatencies(w), r.sameWindow(w), r.samePhases(w), r.sameBenchmark(), r.sameConversations(w), r.oneRun(w), r.freshness(w),
	}
	if r.of(Records) != nil {
		checks = append(checks, serverSaw(s))
	}
	for _, c := range checks {
		// The ledger reports the server's side itself, request by request.
		if c.Holds != nil && !*c.Holds && c.Question != askServer && c.Question != askFresh {
			r.found.add(ledger.WrongRun, ledger.Blocking, "", "%s: %s", c.Question, c.Detail)
		}
	}
	r.missing(w)
	r.versions()
	r.forms()
	return checks
}

func answer(question string, holds bool, detail string, args ...any) Check {
	return Check{Question: question, Holds: &holds, Detail: fmt.Sprintf(detail, args...)}
}

func open(question, detail string, args ...any) Check {
	return Check{Question: question, Detail: fmt.Sprintf(detail, args...)}
}

const (
	askServer = "the server saw these requests"
	askFresh  = "the figures and the summary are not older than the last answer"
)

// sameRequests: ids are random, so one that is in both files makes them one run's.
func (r *Run) sameRequests(w *witness) Check {
	const question = "every request of the figures is in the raw export"
	if r.one(Figures) == nil || !w.figuresRead {
		return open(question, "there are no figures to compare with")
	}
	var strangers []string
	without := 0
	for id, where := range w.ids {
		switch {
		case id == "":
		case where == inFigures:
			strangers = append(strangers, id)
		case where == inRaw:
			without++
		}
	}
	if without > 0 {
		r.found.add(MissingFile, ledger.Warning, "", "%s has no figures of %d requests that are in the raw export", r.one(Figures).Name, without)
	}
	if len(strangers) > w.cut {
		slices.Sort(strangers)
		return answer(question, false, "%d of %d are not, the first is %s", len(strangers), w.answers, strangers[0])
	}
	return answer(question, true, "%d requests", w.answers)
}

// sameLatencies: the sum of as many latencies is not that of another run.
func (r *Run) sameLatencies(w *witness) Check {
	const question = "the summary's latencies are those of the figures"
	if r.Reported == nil || r.Reported.Latency == nil || r.Reported.Latency.Count == nil || r.Reported.Latency.Sum == nil || !w.figuresRead {
		return open(question, "there is no summary or there are no figures to compare with")
	}
	n, sum := *r.Reported.Latency.Count, *r.Reported.Latency.Sum
	const rounding = 1e-6
	holds := int(n) == w.successes && math.Abs(sum-w.latencySum) <= rounding*math.Max(sum, w.latencySum)
	return answer(question, holds, "%.0f of them, together %.3f ms, in the summary; %d, together %.3f ms, in the figures", n, sum, w.successes, w.latencySum)
}

// slack is how far stamps of one event by different processes are taken apart.
const slack = time.Second

// sameWindow: the summary's times have no zone, so any zone is tried.
func (r *Run) sameWindow(w *witness) Check {
	const question = "the summary's window encloses the measured requests"
	sent := w.sent[aiperf.Profiling]
	if r.Reported == nil || sent == nil {
		return open(question, "there is no summary or no measured request")
	}
	start, err1 := time.Parse("2006-01-02T15:04:05.999999999", r.Reported.Start)
	end, err2 := time.Parse("2006-01-02T15:04:05.999999999", r.Reported.End)
	if err := errors.Join(err1, err2); err != nil {
		return open(question, "its times cannot be read: %q to %q", r.Reported.Start, r.Reported.End)
	}
	first, last := time.Unix(0, sent.first).UTC(), time.Unix(0, sent.last).UTC()
	for zone := -14 * time.Hour; zone <= 14*time.Hour; zone += 15 * time.Minute {
		if !start.Add(zone).After(first.Add(slack)) && !end.Add(zone).Before(last.Add(-slack)) {
			return answer(question, true, "%s long; the requests took %s", end.Sub(start).Round(time.Millisecond), last.Sub(first).Round(time.Millisecond))
		}
	}
	return answer(question, false, "it is from %s to %s in its own zone, the requests from %s to %s in UTC", clock(start), clock(end), clock(first), clock(last))
}

func clock(t time.Time) string { return t.Format("2006-01-02 15:04:05") }

// samePhases holds the manifest's counts and times against the requests.
func (r *Run) samePhases(w *witness) Check {
	const question = "the phase manifest counts and encloses the requests"
	if r.manifest == nil {
		return open(question, "there is no phase manifest; AIPerf writes one when there is a warm-up")
	}
	var wrong []string
	total := 0
	listed := map[string]*extent{}
	for _, p := range r.manifest.Phases {
		if p.Requests == nil || p.StartNS == nil || p.EndNS == nil {
			return open(question, "it does not say enough of phase %q", p.Kind)
		}
		e := listed[p.Kind]
		if e == nil {
			e = &extent{first: *p.StartNS, last: *p.EndNS}
			listed[p.Kind] = e
		}
		e.requests += int(*p.Requests)
		e.first, e.last = min(e.first, *p.StartNS), max(e.last, *p.EndNS)
		total += int(*p.Requests)
	}
	for _, kind := range []string{aiperf.Warmup, aiperf.Profiling} {
		theirs, ours := listed[kind], w.sent[kind]
		if theirs == nil || ours == nil {
			if (theirs == nil) != (ours == nil) && w.cut == 0 {
				wrong = append(wrong, "the phase "+kind+" is on one side only")
			}
			continue
		}
		if d := theirs.requests - ours.requests; d < 0 || d > w.cut {
			wrong = append(wrong, fmt.Sprintf("%d %s requests in it, %d in the raw export", theirs.requests, kind, ours.requests))
		}
		if ours.start < theirs.first-int64(slack) || ours.last > theirs.last+int64(slack) {
			wrong = append(wrong, fmt.Sprintf("the phase %s was from %s to %s, its requests from %s to %s", kind,
				clock(time.Unix(0, theirs.first).UTC()), clock(time.Unix(0, theirs.last).UTC()), clock(time.Unix(0, ours.start).UTC()), clock(time.Unix(0, ours.last).UTC())))
		}
	}
	if wrong != nil {
		return answer(question, false, "%s", strings.Join(wrong, "; "))
	}
	return answer(question, true, "%d requests", total)
}

// sameBenchmark compares the ids that AIPerf gave the run.
func (r *Run) sameBenchmark() Check {
	const question = "the summaries of the run and of its phases have one benchmark id"
	if r.Reported == nil || r.Reported.BenchmarkID == "" {
		return open(question, "no summary names one")
	}
	id, phases := r.Reported.BenchmarkID, 0
	for _, kind := range []string{aiperf.Warmup, aiperf.Profiling} {
		name := "phases/" + kind + "/" + SummaryFile
		f, err := look(r.path(name))
		if err != nil {
			continue
		}
		f.Name = name
		p, err := readFile(&f, aiperf.ReadReported)
		if err != nil {
			r.unread(err)
			continue
		}
		if phases++; p.BenchmarkID != id {
			return answer(question, false, "%s in the run's, %s in that of the phase %s", id, p.BenchmarkID, kind)
		}
	}
	if phases == 0 {
		return open(question, "%s; there are no summaries of phases to compare with", id)
	}
	return answer(question, true, "%s", id)
}

// sameConversations: what was sent stands in the inputs.
func (r *Run) sameConversations(w *witness) Check {
	const question = "every conversation of the raw export is in the inputs"
	f := r.one(Inputs)
	if f == nil {
		return open(question, "there is no %s; AIPerf writes none for requests that it sends as they are", InputsFile)
	}
	listed := map[string]bool{}
	if _, err := readFile(f, func(in io.Reader, name string) (struct{}, error) {
		return struct{}{}, aiperf.ReadConversations(in, name, func(id string) { listed[id] = true })
	}); err != nil {
		r.unread(err)
		return open(question, "%s could not be read", f.Name)
	}
	for id := range w.conversations {
		if !listed[id] && id != "" {
			return answer(question, false, "%q is not", id)
		}
	}
	return answer(question, true, "%d of its %d were sent", len(w.conversations), len(listed))
}

// oneRun: AIPerf numbers the requests of a phase.
func (r *Run) oneRun(w *witness) Check {
	const question = "each request has its own number in its phase"
	switch {
	case w.doubles > 0 && r.Reported != nil && r.Reported.Phases != nil && r.Reported.Measured() == nil:
		return open(question, "the run had several measured phases, each with numbers of its own")
	case w.doubles > 0:
		return answer(question, false, "%d have that of another: the export holds more than one run", w.doubles)
	}
	return answer(question, true, "%d requests", len(w.ordinals))
}

// freshness compares times of files with times of requests, which a folder that
// was used before contradicts.
func (r *Run) freshness(w *witness) Check {
	for _, f := range r.of(Leftover) {
		r.found.add(StaleFile, ledger.Warning, "", "%s is beside the whole export: an earlier run in this folder did not end well", f.Name)
	}
	var last int64
	for _, e := range w.sent {
		last = max(last, e.last)
	}
	switch {
	case last == 0:
		return open(askFresh, "no request was answered")
	case r.Copies:
		return open(askFresh, "the files are copies")
	}
	late, known := time.Unix(0, last), false
	for _, role := range []Role{Figures, Summary, Manifest} {
		f := r.one(role)
		if f == nil {
			continue
		}
		if known = true; f.info.ModTime().Before(late.Add(-slack)) {
			detail := fmt.Sprintf("%s was written at %s, the last answer came at %s", f.Name, clock(f.info.ModTime().UTC()), clock(late.UTC()))
			r.found.add(StaleFile, ledger.Warning, "", "%s", detail)
			return answer(askFresh, false, "%s", detail)
		}
	}
	switch raw := r.one(Raw).info.ModTime(); {
	case !known:
		return open(askFresh, "there are neither")
	case raw.Sub(late) > copied:
		return open(askFresh, "the files were written long after the run, perhaps copied: their times say nothing")
	}
	return answer(askFresh, true, "the last answer came at %s", clock(late.UTC()))
}

// copied is how long after the last answer AIPerf has surely written its files.
const copied = 10 * time.Minute

func serverSaw(s ledger.Summary) Check {
	joined := s.ServerRecords.Matched + s.ServerRecords.Ambiguous
	read := joined + s.ServerRecords.Retries + s.ServerRecords.ServerOnly
	return answer(askServer, joined > 0, "%d of its %d records are of requests in the raw export", joined+s.ServerRecords.Retries, read)
}

// missing says what AIPerf would have written.
func (r *Run) missing(w *witness) {
	if r.one(Summary) == nil {
		severity, why := ledger.Blocking, "it was killed, or the file was taken away"
		if w.figuresRead && w.successes == 0 {
			severity, why = ledger.Warning, "AIPerf writes none when no request succeeded"
		}
		r.found.add(MissingFile, severity, "", "no summary of the run: %s", why)
	}
	if r.one(Figures) == nil {
		r.found.add(MissingFile, ledger.Warning, "", "no figures for each request: a prompt that was cut cannot be seen, for want of the client's own token counts")
	}
	if strings.HasPrefix(r.one(Raw).Name, RawDir) {
		r.found.add(MissingFile, ledger.Info, "", "the raw export was not put together; its parts are read")
	}
}

// versions names what has not the form of 0.13.0.
func (r *Run) versions() {
	rep := r.Reported
	if rep == nil {
		return
	}
	if !strings.HasPrefix(rep.Version, "0.13.") {
		r.found.add(OtherVersion, ledger.Info, "", "the summary is of AIPerf %q, schema %q", rep.Version, rep.Schema)
	}
	for _, key := range rep.Strange {
		r.found.add(OtherVersion, ledger.Info, "", "%s: the value of %q has another form", r.one(Summary).Name, key)
	}
	if rep.Phases == nil {
		r.found.add(OtherVersion, ledger.Info, "", "%s says nothing of the phases that were planned", r.one(Summary).Name)
	}
}
