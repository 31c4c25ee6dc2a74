package decide

import (
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/sketch"
)

// watch collects what the events of one transaction changed, for those that turn
// out to be suppressed: no service got anything by them. Which they are is known
// once the transaction is settled, so the differences of all others are never
// computed, and nothing is counted before the commit. A nil watch collects
// nothing.
type watch struct {
	board *sketch.Collector
	rates map[string]int64 // by source
	noted []noted
}

// noted is an event that changed its source's document, while the entity was
// there before and after.
type noted struct {
	record        *record
	before, after canonicaltree.Node
	evaluated     int // projections
	weight        int64
}

func newWatch(b *sketch.Collector) *watch {
	if b == nil {
		return nil
	}
	return &watch{board: b, rates: map[string]int64{}}
}

// note takes an event in, if it is one of those that are observed. A document
// that appears or goes is no matter of fields.
func (w *watch) note(r *record, before, after canonicaltree.Node, evaluated int) {
	if w == nil || !before.Exists() || !after.Exists() {
		return
	}
	rate, known := w.rates[r.Event.Source]
	if !known {
		rate = w.board.Rate(r.Event.Source)
		w.rates[r.Event.Source] = rate
	}
	if sketch.Selected(uint64(r.version), rate) {
		w.noted = append(w.noted, noted{r, before, after, evaluated, rate})
	}
}

// report writes down what a committed transaction came to. causes are the
// records that led to a change or a dead letter.
func (w *watch) report(tally evaluationCounts, causes []*record) {
	if w == nil {
		return
	}
	events, noise := map[string]int64{}, map[string]int64{}
	for of, n := range tally.outcomes {
		switch of.outcome {
		case outcomeNoise:
			noise[of.source] += int64(n)
			events[of.source] += int64(n)
		case outcomeMerged:
			events[of.source] += int64(n)
		}
	}
	for source, n := range events {
		w.board.Count(source, n, noise[source])
	}
	if len(w.noted) == 0 {
		return
	}
	sent := make(map[*record]bool, len(w.noted))
	for i := range w.noted {
		sent[w.noted[i].record] = false
	}
	for _, r := range causes {
		if _, is := sent[r]; is {
			sent[r] = true
		}
	}
	for i := range w.noted {
		if n := &w.noted[i]; !sent[n.record] {
			w.board.Observe(n.record.Event.Source, n.observation())
		}
	}
}

// maxDifferences bounds how many differences of one event are looked at.
const maxDifferences = 64

// exampleOf writes a path for people, at most maxExample bytes of it.
func exampleOf(p canonicaltree.Path) string {
	text := p.String()
	if len(text) > maxExample {
		text = strings.ToValidUTF8(text[:maxExample], "") + "…"
	}
	return text
}

const maxExample = 200

// observation says which paths an event changed.
func (n *noted) observation() sketch.Observation {
	o := sketch.Observation{Entity: n.record.Entity, Weight: n.weight, Projections: int64(n.evaluated)}
	seen := map[string]bool{}
	looked := 0
	canonicaltree.Diff(n.before, n.after, func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
		if looked++; looked > maxDifferences {
			// So many are not told apart.
			o.Paths = make([]sketch.Path, sketch.MaxPaths+1)
			return false
		}
		path := sketch.Locate(p, n.before)
		if key := path.Pattern(); !seen[key] {
			seen[key] = true
			o.Paths = append(o.Paths, path)
			if o.Example == "" {
				o.Example = exampleOf(p)
			}
		}
		return true
	})
	return o
}
