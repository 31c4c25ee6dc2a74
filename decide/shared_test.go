package decide

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
)

// alikePlan has n customers with equal projections, but for what edit does to some.
func alikePlan(t testing.TB, n int, edit func(i int, s *projections.Spec)) *Plan {
	t.Helper()
	plan := &Plan{Merge: merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}}}), Fingerprint: []byte("f"), Revision: 1, MaxChange: 100 << 20}
	for i := range n {
		spec := projections.Spec{Customer: fmt.Sprint("c", i), Name: "x", Fields: []projections.Field{{Out: "id", Path: "id"}, {Out: "text", Path: "text"}}}
		if edit != nil {
			edit(i, &spec)
		}
		p, err := projections.Compile(spec)
		require.NoError(t, err)
		plan.Projections = append(plan.Projections, p)
		plan.Services = append(plan.Services, Service{Name: fmt.Sprintf("c%d/x@a", i), Number: int32(i + 1), Projection: i})
	}
	require.NoError(t, plan.Prepare())
	return plan
}

func registryEvent(payload string, offset int64) *record {
	tree, err := canonicaltree.Parse([]byte(payload))
	if err != nil {
		panic(err)
	}
	return &record{Record: change.Record{Entity: "B", Event: &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload)}}, version: change.NewVersion(1, offset), at: time.Unix(1000, 0), tree: tree}
}

// Equal work is done once: projections of one shape are evaluated, hashed and written once
// for the services of all customers, each with a state of its own.
func TestEqualProjectionsAreEvaluatedOnce(t *testing.T) {
	plan := alikePlan(t, 40, func(i int, s *projections.Spec) {
		if i%2 == 1 {
			s.When = "doc.id > 1"
		}
	})
	s := NewSimulator(plan)
	step := func(payload string) Step {
		step, err := s.Apply(change.Record{Entity: "B", Event: &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload)}}, time.Unix(1000, 0))
		require.NoError(t, err)
		return step
	}
	first := step(`{"id":1,"text":"a"}`)
	require.Len(t, first.Sent, 20)
	services := map[string]bool{}
	for _, c := range first.Sent {
		services[c.Service] = true
		require.Same(t, &first.Sent[0].Doc[0], &c.Doc[0], "written once")
	}
	require.Len(t, services, 20)
	require.Len(t, step(`{"id":2,"text":"a"}`).Sent, 40)
	require.Len(t, step(`{"id":2,"text":"a","other":1}`).Pruned, 40)

	// A projection's error is reported to each service in its own name.
	failed := step(`{"id":"text"}`)
	require.Len(t, failed.Letters, 20)
	for _, l := range failed.Letters {
		customer, _, _ := strings.Cut(l.Service, "/")
		require.Contains(t, l.Reason, "projection "+customer+"/x: when 1:8")
	}
	in, err := plan.Inspect(s.Stored("B"))
	require.NoError(t, err)
	require.Equal(t, DecisionSent, in.History.Decided(plan, 1, 39))
	require.Equal(t, DecisionPruned, in.History.Decided(plan, 2, 38))
}

// A large event for 200 customers takes memory for its document, not for each customer.
func TestALargeEventForManyCustomers(t *testing.T) {
	const size = 8 << 20
	plan := alikePlan(t, 200, nil)
	r := registryEvent(`{"id":1,"text":"`+strings.Repeat("x", size-1000)+`"}`, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b := newBatch(plan, []*record{r}, 16<<20, noCache)
	b.single = true
	v, err := decideBatch(b, store.Loaded{Entities: []store.Entity{{ID: "B"}}})
	require.NoError(t, err)
	for _, l := range v.out.Letters { // a failure must not print megabytes
		require.FailNow(t, l.Reason)
	}
	frames := new(frameWriter).pack(plan, v.changes, []store.WatermarkStep{{Partition: store.Partition{Generation: 1}, To: 1}}, nil, MaxFrame)
	runtime.ReadMemStats(&after)
	require.Equal(t, 1, len(frames)) //nolint:testifylint // a failure must not print megabytes
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(12*size), "allocated in all")

	f, err := change.ParseFrame(frames[0].Body)
	require.NoError(t, err)
	require.Len(t, f.Slices, 200)
}

// What one event comes to is bounded. What does not fit is a dead letter of its services;
// the others get theirs.
func TestTheOutcomeOfARecordIsBounded(t *testing.T) {
	const size = 100_000
	plan := alikePlan(t, 50, func(i int, s *projections.Spec) {
		s.Fields = append(s.Fields, projections.Field{Out: "of", Const: fmt.Append(nil, i)})
	})
	b := newBatch(plan, []*record{registryEvent(`{"id":1,"text":"`+strings.Repeat("x", size)+`"}`, 0)}, 10*size, noCache)
	b.single = true
	v, err := decideBatch(b, store.Loaded{Entities: []store.Entity{{ID: "B"}}})
	require.NoError(t, err)
	require.Equal(t, [2]int{9, 41}, [2]int{len(v.changes), len(v.out.Letters)})
	kept := 0
	for _, l := range v.out.Letters {
		require.Equal(t, "oversized", l.Code)
		require.NotEmpty(t, l.Service)
		kept += len(l.Payload)
	}
	require.LessOrEqual(t, kept, 2*size)
	require.Len(t, v.out.Entities, 1)
}

// BenchmarkEqualServices is an event that changes the view of all services, without the store:
// decided, named and framed.
func BenchmarkEqualServices(b *testing.B) {
	for _, n := range []int{1, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			plan := alikePlan(b, n, nil)
			entity, room, writer := store.Entity{ID: "B"}, new(scratch), new(frameWriter)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch := newBatch(plan, []*record{registryEvent(fmt.Sprintf(`{"id":%d,"filler":"%0400d","text":"x"}`, i, i), int64(i))}, unbounded, noCache)
				batch.scratch = room
				v, err := decideBatch(batch, store.Loaded{Entities: []store.Entity{entity}})
				require.NoError(b, err)
				require.Len(b, v.changes, n)
				writer.pack(plan, v.changes, []store.WatermarkStep{{Partition: store.Partition{Generation: 1}, From: int64(i), To: int64(i) + 1}}, nil, MaxFrame)
				entity = v.out.Entities[0]
				entity.Found, entity.States = true, entity.States.Stored()
				room.reset()
			}
		})
	}
}
