package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// BenchmarkServices is one event in decide, without the store, by the number of services of
// which one shows each entity.
func BenchmarkServices(b *testing.B) {
	for _, services := range []int{20, 1000, 5000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			plan := &Plan{Merge: merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "s"}}}), Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20}
			for i := range services {
				p, err := projections.Compile(projections.Spec{Customer: fmt.Sprint("c", i), Name: "p", When: fmt.Sprintf(`doc.region == "r%d"`, i), Fields: []projections.Field{{Out: "n", Path: "n"}}})
				require.NoError(b, err)
				plan.Projections = append(plan.Projections, p)
				plan.Services = append(plan.Services, Service{Name: fmt.Sprintf("c%d/p@k", i), Number: int32(i), Projection: i})
			}
			require.NoError(b, plan.Prepare())
			const entities = 100
			offset := int64(0)
			var known [entities]store.Entity
			room := new(scratch)
			step := func() {
				var records []*record
				for e := range entities {
					offset++
					text := fmt.Appendf(nil, `{"region":"r%d","n":%d}`, e%services, offset)
					tree, err := canonicaltree.Parse(text)
					require.NoError(b, err)
					records = append(records, &record{Record: change.Record{Entity: fmt.Sprint("e", e), Event: &change.Event{Origin: change.Origin{Source: "s"}, Op: change.Upsert, Payload: text}},
						tree: tree, version: change.NewVersion(1, offset), at: time.UnixMilli(offset), offset: offset})
					known[e].ID = fmt.Sprint("e", e)
				}
				batch := newBatch(plan, records, unbounded, noCache)
				batch.scratch = room
				v, err := decideBatch(batch, store.Loaded{Entities: known[:]})
				require.NoError(b, err)
				require.Len(b, v.changes, entities)
				for i, e := range v.out.Entities {
					e.Found, e.States = true, e.States.Stored()
					known[i] = e
				}
				room.reset()
			}
			step()
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*entities), "µs/event")
		})
	}
}
