package validatefamily

import (
	"fmt"
	"math"
	"unicode/utf8"

	"assay/rules/internal/client"
)

// alternatives is how many tokens of each step a server is asked for.
const alternatives = 10

// LogProb says how far log-probabilities may be from the references', over all
// alternatives of all steps up to where the answers part.
type LogProb struct {
	// MaxRMSError is the largest root mean square of the errors, in nats.
	MaxRMSError float64 `json:"max_rms_error"`
	// MaxScaleError is how far the slope of the server's values over the references'
	// may be from 1. A temperature that is not 1 is a slope.
	MaxScaleError float64 `json:"max_scale_error"`
}

// Distance is how far a server's log-probabilities are from a reference's.
type Distance struct {
	Steps  int `json:"steps"`  // of the answer that were compared
	Values int `json:"values"` // log-probabilities, over all steps
	// RMS and Max are the root mean square and the largest of the errors, in nats.
	RMS float64 `json:"rms"`
	Max float64 `json:"max"`
	// Slope is that of the least-squares line through the values over the
	// references'; 0 with fewer than two.
	Slope float64 `json:"slope"`
}

// String shows a distance to a person.
func (d Distance) String() string {
	return fmt.Sprintf("%d log-probabilities of %d tokens are off by %.4f (root mean square; at most %.4f), their scale is %.4f", d.Values, d.Steps, d.RMS, d.Max, d.Slope)
}

// pair is a log-probability by the server and by the reference.
type pair struct{ got, want float64 }

// compare pairs the log-probabilities of an answer with those of its reference, up
// to and with the first step at which the two took different tokens: from there on
// they answer different questions. An alternative that the server does not list is
// less likely than all that it does; it counts as likely as the last of them, if
// that is an error at all.
func compare(got []client.TokenLogProb, ref Reference) (pairs []pair, steps int) {
	k := 0
	for _, g := range got {
		// llama.cpp tells nothing of a token that ends within a character.
		held := k
		for k < len(ref.Top) && ref.within(k) && !g.Is(ref.Tokens[k], ref.text(k)) {
			k++
		}
		if k == len(ref.Top) {
			break
		}
		chosen := Rival{Token: ref.Tokens[k], LogProb: ref.Top[k].LogProb, Text: ref.text(k)}
		same := g.Is(chosen.Token, chosen.Text)
		if k > held && !same {
			break // perhaps they parted within the character
		}
		for _, r := range append([]Rival{chosen}, ref.Top[k].Rivals...) {
			if p, listed := likelihood(g, r); listed || p < r.LogProb {
				pairs = append(pairs, pair{p, r.LogProb})
			}
		}
		steps, k = steps+1, k+1
		if !same {
			break
		}
	}
	return pairs, steps
}

// likelihood is the log-probability of a token at a step, or else the lowest that is
// listed.
func likelihood(step client.TokenLogProb, r Rival) (p float64, listed bool) {
	p = step.Value
	for _, a := range append([]client.LogProb{step.LogProb}, step.Top...) {
		if a.Is(r.Token, r.Text) {
			return a.Value, true
		}
		p = min(p, a.Value)
	}
	return p, false
}

// within reports whether a step ends within a character.
func (r Reference) within(step int) bool {
	end := r.Top[step].End
	return end < len(r.Text) && !utf8.RuneStart(r.Text[end])
}

// measure is the distance that pairs show.
func measure(pairs []pair, steps int) Distance {
	d := Distance{Steps: steps, Values: len(pairs)}
	if len(pairs) == 0 {
		return d
	}
	n := float64(len(pairs))
	var sum, got, want float64
	for _, p := range pairs {
		e := p.got - p.want
		sum += e * e
		d.Max = max(d.Max, math.Abs(e))
		got += p.got / n
		want += p.want / n
	}
	d.RMS = math.Sqrt(sum / n)
	var across, along float64
	for _, p := range pairs {
		across += (p.got - got) * (p.want - want)
		along += (p.want - want) * (p.want - want)
	}
	if along > 0 {
		d.Slope = across / along
	}
	return d.rounded()
}

// rounded keeps four decimals, as references do: more would be noise in evidence
// that is compared byte by byte.
func (d Distance) rounded() Distance {
	for _, v := range []*float64{&d.RMS, &d.Max, &d.Slope} {
		*v = math.Round(*v*1e4) / 1e4
	}
	return d
}

// judge says what is wrong with a distance; empty if nothing is.
func (l LogProb) judge(d Distance) string {
	switch {
	case d.Values < 2:
		return "there is nothing to compare"
	case !(d.RMS <= l.MaxRMSError): // not a number is wrong too
		return fmt.Sprintf("the error is %.4f, allowed is %.4f", d.RMS, l.MaxRMSError)
	case !(math.Abs(d.Slope-1) <= l.MaxScaleError):
		return fmt.Sprintf("the scale is %.4f, allowed is 1 ± %.4f", d.Slope, l.MaxScaleError)
	}
	return ""
}
