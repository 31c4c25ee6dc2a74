package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// BenchmarkApply is what one event costs in decide, without the store: read
// the entity's state, decide, write it again. When it is observed, every
// event counts as suppressed, which costs most.
func BenchmarkApply(b *testing.B) {
	b.Run("unobserved", func(b *testing.B) { benchmarkApply(b, nil) })
	b.Run("observed", func(b *testing.B) { benchmarkApply(b, fieldcount.NewCollector()) })
}

func benchmarkApply(b *testing.B, collector *fieldcount.Collector) {
	p := bananaPlan(b)
	v := newVerdict(p, unbounded)
	v.observer = newChangeObserver(collector, p)
	var e store.Entity
	e.ID = "B-007"
	var offset int64
	step := func(r *record) {
		ev, err := newEvaluation(v, e)
		require.NoError(b, err)
		require.NoError(b, ev.apply(r))
		if offset%200 == 0 { // a batch
			v.observer.report(v.outcomes)
			v = newVerdict(p, unbounded)
			v.observer = newChangeObserver(collector, p)
		}
		row, dirty := ev.result()
		require.True(b, dirty)
		row.Found = true
		e = row
	}
	next := func() *record {
		offset++
		payload := []byte(fmt.Sprintf(`{"id":"B-007","origin":"EC","ripeness_level":%d}`, offset))
		tree, err := canonicaltree.Parse(payload)
		require.NoError(b, err)
		ev := &change.Event{Origin: change.Origin{Source: "registry", Topic: "mW8nq2kQTn6P1ZQd0a7F4A", Partition: 3, Offset: offset}, EventID: fmt.Sprintf("9f1c9d3e-8c1c-4f7e-9a55-%012d", offset), Op: change.Upsert, Payload: payload}
		ev.SetMark(tree.Root().Sum(canonicaltree.Literal))
		return &record{Record: change.Record{Entity: "B-007", Event: ev}, tree: tree,
			version: change.NewVersion(1, offset), at: time.UnixMilli(1_700_000_000_000 + offset).UTC(), offset: offset}
	}
	for range 20 {
		step(next())
	}
	b.ReportAllocs()
	for b.Loop() {

		r := next()

		step(r)
	}
	b.ReportMetric(float64(len(e.Fence)), "fence-bytes")
}
