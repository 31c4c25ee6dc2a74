package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// BenchmarkDense is one event of about 500 bytes in decide, without the store: three sources,
// and twenty services, of which about five get a change.
func BenchmarkDense(b *testing.B) {
	b.Run("services=20", func(b *testing.B) { decideDense(b, 20, false) })
	for _, services := range []int{1, 200} {
		b.Run(fmt.Sprintf("equal=%d", services), func(b *testing.B) { decideDense(b, services, true) })
	}
}

func decideDense(b *testing.B, services int, equal bool) {
	const entities, sources, fields = 100, 3, 16
	var spec merge.Spec
	for s := range sources {
		spec.Sources = append(spec.Sources, merge.Source{Name: fmt.Sprint("s", s)})
	}
	plan := &Plan{Merge: merge.Compile(spec), Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20}
	for i := range services {
		of := projections.Spec{Customer: fmt.Sprint("c", i), Name: "p", When: `doc.origin in ["EC", "CO"]`}
		view := i
		if equal {
			view = 0
		}
		for k := range 6 {
			of.Fields = append(of.Fields, projections.Field{Out: fmt.Sprint("o", k), Path: fmt.Sprintf("group%d.field_%d_%d", (view+k)%4, k%sources, (view*3+k)%fields)})
		}
		of.Fields = append(of.Fields, projections.Field{Out: "id", Path: "id"})
		p, err := projections.Compile(of)
		require.NoError(b, err)
		plan.Projections = append(plan.Projections, p)
		plan.Services = append(plan.Services, Service{Name: fmt.Sprintf("c%d/p@k", i), Number: int32(i), Projection: i})
	}
	require.NoError(b, plan.Prepare())
	var known [entities]store.Entity
	room := new(scratch)
	var writer frameWriter
	offset, changes := int64(0), 0
	step := func() {
		from := offset
		var records []*record
		for e := range entities {
			offset++
			source := int(offset) % sources
			var text strings.Builder
			fmt.Fprintf(&text, `{"id":"entity-%d","origin":"EC"`, e)
			for g := range 4 {
				fmt.Fprintf(&text, `,"group%d":{`, g)
				for f := g; f < fields; f += 4 {
					value := int64(f)
					if f%8 == int(offset/sources)%8 {
						value = offset
					}
					fmt.Fprintf(&text, `"field_%d_%d":"value %d",`, source, f, value)
				}
				fmt.Fprintf(&text, `"n_%d":%d}`, source, g)
			}
			text.WriteByte('}')
			payload := []byte(text.String())
			tree, err := canonicaltree.Parse(payload)
			require.NoError(b, err)
			records = append(records, &record{Record: change.Record{Entity: fmt.Sprint("e", e), Event: &change.Event{Origin: change.Origin{Source: fmt.Sprint("s", source)}, Op: change.Upsert, Payload: payload}},
				tree: tree, version: change.NewVersion(1, offset), at: time.UnixMilli(offset), offset: offset})
			known[e].ID = fmt.Sprint("e", e)
		}
		b.StartTimer()
		defer b.StopTimer()
		batch := newBatch(plan, records, unbounded, noCache)
		batch.scratch = room
		v, err := decideBatch(batch, store.Loaded{Entities: known[:]})
		require.NoError(b, err)
		changes += len(v.changes)
		writer.pack(plan, v.changes, []store.WatermarkStep{{Partition: store.Partition{Generation: 1}, From: from, To: offset + 1}}, frameEnds{}, MaxFrame)
		for i, e := range v.out.Entities {
			e.Found, e.States = true, e.States.Stored()
			known[i] = e
		}
		for _, r := range records {
			r.release()
		}
		room.reset()
	}
	b.StopTimer()
	for range 2 * sources {
		step()
	}
	b.ReportAllocs()
	b.ResetTimer()
	changes = 0
	for range b.N {
		step()
	}
	b.ReportMetric(float64(changes)/float64(b.N*entities), "changes/event")
}
