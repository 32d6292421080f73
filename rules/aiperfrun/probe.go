package aiperfrun

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"assay/engine/action"
	"assay/rules/internal/client"
	"assay/rules/internal/jsonfile"
	"assay/rules/internal/testbed"
	"assay/rules/validatefamily"
)

// Probes is a Probe a line: what the sample sent before the load.
const Probes = ClientDir + "/probes.jsonl"

// validationRole is the role of the validation that a run requires.
const validationRole = "validation"

// Probe is a request of the validation, sent again by the sample itself: the
// server that is timed must be the one that was validated.
type Probe struct {
	ID       string `json:"id"` // X-Request-ID
	Prompt   string `json:"prompt"`
	Endpoint string `json:"endpoint"`
	// SentWallNS is Unix time in ns; LatencyNS counts from there to the answer.
	SentWallNS int64 `json:"sent_wall_ns"`
	LatencyNS  int64 `json:"latency_ns"`
	Status     int   `json:"status"`
	// TextSHA256 is the hex digest of the answer's text.
	Text             string `json:"text"`
	TextSHA256       string `json:"text_sha256"`
	FinishReason     string `json:"finish_reason"`
	PromptTokens     *int64 `json:"prompt_tokens,omitempty"`
	CompletionTokens *int64 `json:"completion_tokens,omitempty"`
}

// Validation names the verdict that a sample was made under.
type Validation struct {
	Verdict  digest.Digest `json:"verdict"` // of the file
	Criteria digest.Digest `json:"criteria"`
	Bundle   digest.Digest `json:"bundle"`
	// Probes is how many answers were compared with the validation's.
	Probes int `json:"probes"`
}

// probe sends the validation's prompts of this endpoint to the server and
// compares the answers. A difference rejects the sample.
func (s sampler) probe(ctx context.Context, run *action.Run, sample *Sample, base string, bed *testbed.Testbed) error {
	dir := run.Input(validationRole)
	var verdict validatefamily.Verdict
	raw, err := os.ReadFile(filepath.Join(dir, validatefamily.VerdictFile))
	if err == nil {
		err = jsonfile.Decode(raw, &verdict)
	}
	if err != nil {
		return fmt.Errorf("the validation's verdict: %w", err)
	}
	if verdict.Bundle != sample.Bundle.Digest {
		return fmt.Errorf("the validation judged bundle %s, this server has %s", verdict.Bundle, sample.Bundle.Digest)
	}
	sample.Validation = &Validation{Verdict: digest.FromBytes(raw), Criteria: verdict.Criteria, Bundle: verdict.Bundle}
	questions, err := validatefamily.ReadQuestions(dir)
	if err != nil {
		return fmt.Errorf("the validation's answers: %w", err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	var differences []error
	c := client.New(base)
	for i, q := range questions {
		if q.Task != s.workload.Endpoint {
			continue
		}
		run.Progress(i, len(questions), "probes")
		body, err := q.Body(bed.Spec.Model, bed.Family.Generation)
		if err != nil {
			return err
		}
		id := "probe-" + q.ID
		a, err := c.Do(ctx, client.Request{ID: id, Endpoint: q.Task, Body: body})
		if err != nil {
			return err
		}
		sum := sha256.Sum256([]byte(a.Text))
		err = enc.Encode(Probe{
			ID: id, Prompt: q.ID, Endpoint: q.Task, SentWallNS: a.Sent.UnixNano(), LatencyNS: a.Last.Nanoseconds(), Status: a.Status,
			Text: a.Text, TextSHA256: hex.EncodeToString(sum[:]), FinishReason: a.FinishReason,
			PromptTokens: a.PromptTokens, CompletionTokens: a.CompletionTokens,
		})
		if err != nil {
			return err
		}
		sample.Validation.Probes++
		if a.Status != http.StatusOK || a.Text != q.Answer.Text || a.FinishReason != q.Answer.FinishReason {
			differences = append(differences, fmt.Errorf("probe %s: status %d, answer %q; the validation got %q", id, a.Status, a.Text, q.Answer.Text))
		}
	}
	if err := os.WriteFile(filepath.Join(run.Out, Probes), out.Bytes(), 0o644); err != nil {
		return err
	}
	if err := errors.Join(differences...); err != nil {
		return &action.RejectedError{Reason: "the server does not answer as the validated one did:\n" + err.Error()}
	}
	return nil
}

// ReadProbes reads the probes of a sample; none if it sent none.
func ReadProbes(sample string) ([]Probe, error) {
	data, err := os.ReadFile(filepath.Join(sample, Probes))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var probes []Probe
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		var p Probe
		if err := jsonfile.Decode(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", Probes, n, err)
		}
		probes = append(probes, p)
	}
	return probes, lines.Err()
}
