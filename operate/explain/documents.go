package explain

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// documents lists the source documents by precedence, those of sources that the configuration no
// longer has last, and the merged document.
func (s *report) documents() {
	s.Complete, s.Current = s.inspection.Complete, s.inspection.Current
	seen := map[string]*decide.Seen{}
	for i := range s.inspection.Seen {
		seen[s.inspection.Seen[i].Source] = &s.inspection.Seen[i]
	}
	names := slices.Concat(s.in.Config.Merge.Precedence, s.in.Config.Sources.Names(), slices.Sorted(maps.Keys(s.inspection.Docs)))
	listed := map[string]bool{}
	for _, name := range names {
		if listed[name] {
			continue
		}
		listed[name] = true
		out := Source{Source: name, Unknown: true, Required: slices.Contains(s.in.Config.Merge.Required, name), Seen: seen[name]}
		c := s.in.Config.Sources.Find(name)
		if c != nil {
			out.Unknown, out.Mode, out.Mount = false, c.Mode, c.Mount
		}
		if doc := s.inspection.Docs[name]; doc.Exists() {
			out.Document = json.RawMessage(doc.Raw())
		} else if out.Required {
			s.Missing = append(s.Missing, name)
		}
		if out.Seen != nil && len(out.Seen.Positions) > 0 {
			last := out.Seen.Positions[len(out.Seen.Positions)-1]
			out.Position = positionText(c, last.Partition, last.Offset)
		}
		s.Sources = append(s.Sources, out)
	}
	if !s.inspection.Merged.Exists() {
		return
	}
	d := &Document{Document: json.RawMessage(s.inspection.Merged.Raw()), Parts: []Part{}}
	s.plan.Merge.Parts(s.inspection.Docs, func(p merge.Part) bool {
		if len(d.Parts) == maxParts {
			d.More++
			return true
		}
		d.Parts = append(d.Parts, Part{Path: p.Path.String(), Value: json.RawMessage(p.Value.Raw()), Source: p.Source, Over: slices.Clone(p.Over)})
		return true
	})
	s.Merged = d
}
