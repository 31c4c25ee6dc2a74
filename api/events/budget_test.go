package events_test

import (
	"context"
	"encoding/base64"
	"fmt"
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

// heap is what is on the heap, garbage that waits to be collected included.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// peak returns the most that the heap grew by while f ran.
func peak(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
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
		grew := peak(func() { a = w.send(request{body: body}) })
		require.Equal(t, 413, a.status, name)
		require.Contains(t, w.problem(a).Detail, "1048576 values")
		require.Less(t, grew, uint64(64<<20), name) // the body, which doubled as it came
	}
	// So it is in the data of a CloudEvent, which nobody could count before.
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
			w := newWorld(t, options{memory: 32 << 20, maxBody: largest, maxRows: rows, timeout: time.Second, shape: func(s *ingest.Extractor) { s.MaxEvent = largest }})
			away, back := context.WithCancel(t.Context())
			defer back()
			w.setAppends(func(ctx context.Context) error {
				select {
				case <-away.Done():
				case <-ctx.Done():
				}
				return context.Canceled
			})
			statuses := make(chan int, 1000)
			grew := peak(func() {
				var all sync.WaitGroup
				for token := range 8 {
					q := q
					q.tenant = fmt.Sprint("t", token)
					for range each {
						all.Go(func() { statuses <- w.send(q).status })
					}
				}
				all.Wait()
			})
			close(statuses)
			for s := range statuses {
				require.Equal(t, 503, s)
			}
			t.Logf("grew by %d MiB of %d MiB", grew>>20, w.door.Memory>>20)
			require.Less(t, grew, uint64(w.door.Memory))
		})
	}
}
