package decide

import (
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
)

// changeObserver collects the paths that suppressed events of one transaction changed: those
// by which no service got anything. Nothing is counted before the commit. A nil one
// collects nothing.
type changeObserver struct {
	collector *fieldcount.Collector
	plan      *Plan
	rates     map[string]int64 // by source
	observed  []observed
}

// observed is an event that changed its source's document, while the entity was
// there before and after.
type observed struct {
	source string
	paths  fieldcount.Observation
}

func newChangeObserver(b *fieldcount.Collector, p *Plan) *changeObserver {
	if b == nil {
		return nil
	}
	return &changeObserver{collector: b, plan: p, rates: map[string]int64{}}
}

// note adds a suppressed event, if it is one of those that are observed. A document that
// appears or disappears is no matter of fields.
func (c *changeObserver) note(r *record, before, after canonicaltree.Node, evaluated int) {
	if c == nil || !before.Exists() || !after.Exists() {
		return
	}
	rate, known := c.rates[r.Event.Source]
	if !known {
		rate = c.collector.Rate(r.Event.Source)
		c.rates[r.Event.Source] = rate
	}
	if fieldcount.Selected(uint64(r.version), rate) {
		// At once, since documents are released with or before the batch.
		o := fieldcount.Observation{Entity: r.Entity, Weight: rate, Projections: int64(evaluated)}
		observe(&o, before, after)
		c.observed = append(c.observed, observed{r.Event.Source, o})
	}
}

// report counts the outcomes of a committed transaction.
func (c *changeObserver) report(outcomes map[outcomeOf]int) {
	if c == nil {
		return
	}
	events, noise := map[string]int64{}, map[string]int64{}
	for of, n := range outcomes {
		switch of.outcome {
		case outcomeNoise:
			noise[of.source] += int64(n)
			events[of.source] += int64(n)
		case outcomeMerged:
			events[of.source] += int64(n)
		}
	}
	for source, n := range events {
		c.collector.Count(source, n, noise[source])
	}
	for i := range c.observed {
		source := c.observed[i].source
		c.collector.Observe(source, c.observed[i].paths, func(p fieldcount.Path) bool { return c.plan.reads(source, p) })
	}
}

// maxDifferences bounds how many differences of one event are looked at.
const maxDifferences = 64

// exampleOf formats a path, at most maxExample bytes of it.
func exampleOf(p canonicaltree.Path) string {
	text := p.String()
	if len(text) > maxExample {
		text = strings.ToValidUTF8(text[:maxExample], "") + "…"
	}
	return text
}

const maxExample = 200

// observe adds the paths at which two documents differ.
func observe(o *fieldcount.Observation, before, after canonicaltree.Node) {
	seen := map[string]bool{}
	looked := 0
	canonicaltree.Diff(before, after, func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
		if looked++; looked > maxDifferences {
			o.Paths = nil // too many
			return false
		}
		path := fieldcount.Locate(p, before)
		if key := path.Pattern(); !seen[key] {
			seen[key] = true
			o.Paths, o.Examples = append(o.Paths, path), append(o.Examples, exampleOf(p))
		}
		return true
	})
}
