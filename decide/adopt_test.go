package decide

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// I12: an owner continues under the plan that replaced its own, with its partitions and its
// cache; the record that the store refused as superseded is decided under the new one.
func TestAnOwnerAdoptsTheNextPlan(t *testing.T) {
	for name, adopted := range map[string]bool{"adopted before the next decision": true, "found by a refused decision": false} {
		t.Run(name, func(t *testing.T) {
			w := newFlow(t)
			var next Plan
			var asked atomic.Int64
			w.next = func(_ context.Context, superseded *Plan) *Plan {
				asked.Add(1)
				assert.Same(t, w.plan, superseded)
				return &next
			}
			d, out := w.owner(t, nil)
			hand(t, d, 0, event(t, "B-007", 0, `{"id":"B-007","ripeness_level":1}`))
			hand(t, d, 0, event(t, "B-008", 1, `{"id":"B-008","ripeness_level":1}`))
			missed, handed := counted(t, w.metrics.cacheUsed.WithLabelValues(cacheMiss)), out.count()

			next = *w.plan
			next.Services = slices.Clone(next.Services)
			wider, err := projections.Compile(projections.Spec{Customer: "two", Name: "list", Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "ripeness", Path: "ripeness_level"}}})
			require.NoError(t, err)
			next.Projections = []*projections.Projection{next.Projections[0], wider}
			next.Fingerprint = bytes.ToUpper(append([]byte("next"), next.Fingerprint...))
			require.NoError(t, next.Prepare())
			revision, err := w.store.Activate(t.Context(), next.Fingerprint, false, store.Inbox{}, nil)
			require.NoError(t, err)
			next.Revision = revision.Number
			if adopted {
				d.Adopt(&next)
			}
			hand(t, d, 0, event(t, "B-007", 2, `{"id":"B-007","ripeness_level":2}`))
			hand(t, d, 0, event(t, "B-008", 3, `{"id":"B-008","ripeness_level":1}`)) // the view of two is another one
			if !adopted {
				missed++ // the refused decision had changed what was cached of its entity
			}
			require.Equal(t, missed, counted(t, w.metrics.cacheUsed.WithLabelValues(cacheMiss)), "the cache stays")
			require.Equal(t, handed+2, out.count())
			require.Equal(t, !adopted, asked.Load() > 0)
			e, err := w.store.Entity(t.Context(), "B-007")
			require.NoError(t, err)
			require.True(t, next.Current(e))
			require.NoError(t, context.Cause(d.stop))
			require.EqualValues(t, 4, d.Decided()[store.Partition{Generation: w.inbox.Generation}])
		})
	}
}
