package decide

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
)

// Inspection is a stored entity evaluated by a plan, for display and dry runs. It is made by the
// code that decides. Not for concurrent use.
type Inspection struct {
	// Docs are the source documents, by source.
	Docs map[string]canonicaltree.Node
	// Merged is the merged document; absent while no source has one. A problem of
	// merging is in MergeError, and nothing can be decided then.
	Merged     canonicaltree.Node
	MergeError error
	// Complete: every required source has a document. Present: there is a merged
	// document and it is complete, so services get something.
	Complete, Present bool
	// Current: the services were last evaluated under this plan.
	Current bool
	History History
	Seen    []Seen // by source, in the order of their names

	plan *Plan
}

// Seen is what an entity remembers of a source to recognise stale events.
type Seen struct {
	Source    string         `json:"source"`
	Positions []SeenPosition `json:"positions,omitempty"` // the highest per stream and partition
	Sequence  string         `json:"sequence,omitempty"`  // the highest
}

// SeenPosition is a place in a source's stream.
type SeenPosition struct {
	Stream    string `json:"stream"` // identity of the topic or file
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Inspect takes a stored entity apart. The error says that the stored state
// cannot be read.
func (p *Plan) Inspect(e store.Entity) (*Inspection, error) {
	ev, err := newEvaluation(newVerdict(p, unbounded), e)
	if err != nil {
		return nil, err
	}
	in := &Inspection{Docs: ev.docs, Current: ev.current, History: ev.history.public(), plan: p}
	in.Merged, in.Complete, in.MergeError = p.Merge.Compose(nil, ev.docs)
	in.Present = in.MergeError == nil && in.Complete && in.Merged.Exists()
	for _, source := range slices.Sorted(maps.Keys(ev.fence)) {
		f := ev.fence[source]
		seen := Seen{Source: source, Sequence: f.Sequence}
		for _, at := range f.Positions {
			if at.Topic != "" {
				seen.Positions = append(seen.Positions, SeenPosition{at.Topic, at.Partition, at.Offset})
			}
		}
		in.Seen = append(in.Seen, seen)
	}
	return in, nil
}

// View is the output of a projection for an entity.
type View struct {
	// Match is false when the filter does not let the document through, or when
	// there is no document; Content is a retraction's then.
	Match   bool
	Content change.Content
	Doc     []byte // JSON; nil without a match
}

// View projects the entity. The error is from the filter or from a field.
func (in *Inspection) View(projection int) (View, error) {
	if !in.Present {
		return View{Content: change.Retracted()}, nil
	}
	p := in.plan.Projections[projection]
	digest, match, err := p.Sum(in.Merged)
	if err != nil || !match {
		return View{Content: change.Retracted()}, err
	}
	text, _, err := p.Project(nil, in.Merged)
	return View{Match: true, Content: change.Hashed(canonicaltree.Scheme, digest), Doc: text}, err
}

// Stripped returns a stored entity with source documents that edit has changed;
// it gets each, and returns it or its replacement.
func Stripped(e store.Entity, edit func(source string, doc canonicaltree.Node) (canonicaltree.Node, error)) (store.Entity, error) {
	docs, err := merge.SplitNodes(e.Docs)
	if err != nil {
		return e, fmt.Errorf("entity %q: %w", e.ID, err)
	}
	changed := false
	for source, doc := range docs {
		if docs[source], err = edit(source, doc); err != nil {
			return e, fmt.Errorf("entity %q: source %s: %w", e.ID, source, err)
		}
		changed = changed || docs[source] != doc
	}
	if changed {
		e.Docs = merge.JoinNodes(nil, docs)
	}
	return e, nil
}

// Stored returns an entity with its dam states as a store would hold it; Found is
// false for one that was never written.
func (s *Simulator) Stored(entity string) store.Entity { return s.entities[entity] }
