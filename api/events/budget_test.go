package events_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/ingest"
	"github.com/stretchr/testify/require"
)

// heap returns the bytes on the heap, with garbage that is not collected yet.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// peak returns the growth of the heap while f ran, within a memory limit of so many bytes more,
// as limits.memory sets one: a busy machine collects late, but not beyond it, unless live memory
// needs it.
func peak(limit int64, f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + limit))
	before, most := heap(), uint64(0)
	ended, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, heap())
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(ended)
	<-sampled
	return most - min(before, most)
}

// A body whose tree would have a quarter of a gigabyte is refused before it has one.
func TestTooManyValues(t *testing.T) {
	w := newWorld(t, options{maxBody: 16 << 20, memory: 1 << 30})
	for name, more := range map[string]string{"digits": "0,", "nothing": "[],"} {
		body := `{"id":"a","d":[` + strings.Repeat(more, 15<<20/len(more)) + "0]}"
		var a answer
		grew := peak(64<<20, func() { a = w.send(request{body: body}) })
		require.Equal(t, 413, a.status, name)
		require.Contains(t, w.problem(a).Detail, "1048576 values")
		require.Less(t, grew, uint64(64<<20), name) // the body, which doubled as it came
	}
	// The base64 data of a CloudEvent is counted after it is decoded.
	data := base64.StdEncoding.EncodeToString([]byte(`{"id":"a","d":[` + strings.Repeat("0,", 1000) + `0]}`))
	a := w.send(request{kind: "application/cloudevents+json", body: `{"specversion":"1.0","id":"7","source":"/x","type":"t","data_base64":"` + data + `"}`})
	require.Equal(t, 422, a.status, a.body)
	require.Contains(t, w.problem(a).Detail, "data_base64")
}

// Bodies that become many times their size, from many tokens at a time, keep
// within the budget while the inbox is away, when everything stays in hand.
func TestHostileBodiesKeepWithinTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	const (
		largest = 128 << 10
		rows    = 1000
		each    = 64 // requests of a token
	)
	fill := func(first, more, last string) string {
		return first + strings.Repeat(more, (largest-len(first)-len(last))/len(more)) + last
	}
	lines := strings.Repeat("{\"id\":1}\n", rows)
	for name, q := range map[string]request{
		"digits": {path: "plain/events", body: fill(`{"id":"a","trace":1,"d":[`, "0,", "0]}")},
		"lines":  {path: "plain/events:batch", kind: "application/x-ndjson", body: lines},
		"array":  {path: "plain/events:batch", body: "[" + strings.ReplaceAll(strings.TrimSpace(lines), "\n", ",") + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			least, memory := uint64(math.MaxUint64), uint64(0)
			for attempt := 0; attempt < 3 && least >= memory; attempt++ { // garbage differs, live memory does not
				w := newWorld(t, options{memory: 32 << 20, maxBody: largest, maxRows: rows, timeout: time.Second, shape: func(s *ingest.Extractor) { s.MaxEvent = largest }})
				memory = uint64(w.door.Memory)
				least = min(least, peak(w.door.Memory*9/10, func() { w.hold(t, q, 8, each) }))
			}
			t.Logf("grew by %d MiB of %d MiB", least>>20, memory>>20)
			require.Less(t, least, memory)
		})
	}
}

// hold sends so many requests of each of so many tenants at a time, while the inbox is away.
func (w *world) hold(t *testing.T, q request, tenants, each int) {
	away, back := context.WithCancel(t.Context())
	defer back()
	w.setAppends(func(ctx context.Context) error {
		select {
		case <-away.Done():
		case <-ctx.Done():
		}
		return context.Canceled
	})
	statuses := make(chan int, tenants*each)
	var all sync.WaitGroup
	for tenant := range tenants {
		q := q
		q.tenant = fmt.Sprint("t", tenant)
		for range each {
			all.Go(func() { statuses <- w.send(q).status })
		}
	}
	all.Wait()
	close(statuses)
	for s := range statuses {
		require.Equal(t, 503, s)
	}
}
