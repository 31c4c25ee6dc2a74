package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// BenchmarkService takes, writes and settles 100 changes of as many entities.
func BenchmarkService(b *testing.B) {
	s, now, v := core.New(core.Config{MaxBatch: 100}), time.Unix(1_000_000, 0), change.Version(0)
	entities := make([]string, 100)
	for n := range entities {
		entities[n] = fmt.Sprint("e", n)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range entities {
			v++
			s.Add(&core.Item{Position: v, Version: v, Entity: e, Bytes: 100})
		}
		step := s.Next(now)
		s.Done(now, step, time.Millisecond, make([]*sinks.Error, len(step.Items)), nil, false)
		if len(s.Effects()) != len(entities) || s.Next(now).Kind != core.Wait {
			b.Fatal("not settled")
		}
	}
}
