package simulation

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/store"
)

// GroupLetters implements store.DeadLetters.
func (m *Memory) GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error) {
	f.AfterID, f.Limit = 0, store.GroupedLetters
	letters, err := m.ListLetters(ctx, f)
	var groups []store.LetterGroup
	for _, l := range letters {
		i := slices.IndexFunc(groups, func(g store.LetterGroup) bool {
			return g.Stage == l.Stage && g.Source == l.Source && g.Service == l.Service && g.Code == l.Code
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, store.LetterGroup{Stage: l.Stage, Source: l.Source, Service: l.Service, Code: l.Code, First: l.Created})
		}
		g := &groups[i]
		g.Letters, g.Reason = g.Letters+1, max(g.Reason, l.Reason)
		if l.Created.Before(g.First) {
			g.First = l.Created
		}
		if l.Last.After(g.Last) {
			g.Last = l.Last
		}
	}
	slices.SortStableFunc(groups, func(a, b store.LetterGroup) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Code, b.Code))
	})
	return groups[:min(len(groups), limit)], err
}

// Revisions implements store.Configurations.
func (m *Memory) Revisions(ctx context.Context, limit int) (all []store.Revision, err error) {
	err = m.run(ctx, func() error {
		all = slices.Clone(m.state.revisions)
		slices.Reverse(all)
		all = all[:min(len(all), limit)]
		return nil
	})
	return all, err
}
