package decide

import (
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// An entity enters a service that has nothing of it, also one that had it before: that is no update,
// and the number of entities rises.
func TestTheEffectOfACandidate(t *testing.T) {
	has := store.Row{Found: true, Content: change.Content{1, 2}}
	left := store.Row{Found: true, Content: change.Retracted()}
	unknown := store.Row{Found: true}
	shown, gone := candidate{output: &output{}}, candidate{content: change.Retracted()}
	for _, c := range []struct {
		candidate candidate
		row       store.Row
		want      change.Effect
	}{
		{shown, store.Row{}, change.Enters}, {shown, left, change.Enters}, {shown, has, change.Keeps}, {shown, unknown, change.Keeps},
		{gone, store.Row{}, change.Keeps}, {gone, left, change.Keeps}, {gone, has, change.Leaves}, {gone, unknown, change.Leaves},
	} {
		require.Equal(t, c.want, c.candidate.effect(&c.row), "%+v", c.row)
	}
}
