package pipeline

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkPost posts events with event ids over 64 connections to an embedded pipeline with
// one service: each by itself, or 1,000 in a request. One operation is one run over -events
// events, until each was answered; processor time includes the callers.
func BenchmarkPost(b *testing.B) {
	for _, rows := range []int{1, 1000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			address := free.Addr().String()
			require.NoError(b, free.Close())
			dir := b.TempDir()
			w := embeddedWorld(b, dir)
			w.main = strings.Replace("sources:\n  registry:\n    http: {}"+benchSource,
				`api: {listen: "127.0.0.1:0"}`, fmt.Sprintf("api: {listen: %q, rate: 1000000}", address), 1)
			l := startLoad(b, dir, w, newStream(sparse, *benchEntities, 1), push, nil)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			b.Cleanup(client.CloseIdleConnections)
			took, used := time.Duration(0), usedCPU(b)
			for b.Loop() {
				b.StopTimer()
				events := l.s.more(*benchEvents)
				b.StartTimer()
				start := time.Now()
				post(b, client, "http://"+address+"/v1/sources/registry/events", events, rows)
				took += time.Since(start)
			}
			n := float64(*benchEvents * b.N)
			b.ReportMetric(n/took.Seconds(), "events/s")
			b.ReportMetric(float64((usedCPU(b)["weir"]-used["weir"]).Microseconds())/n, "cpu-us/event")
		})
	}
}

// post sends events, so many in a request.
func post(b *testing.B, client *http.Client, url string, events []event, rows int) {
	bodies := make(chan []byte)
	var senders sync.WaitGroup
	for range 64 {
		senders.Go(func() {
			for body := range bodies {
				kind := "application/json"
				if rows > 1 {
					kind = "application/x-ndjson"
				}
				answer, err := client.Post(url, kind, bytes.NewReader(body))
				if err != nil || answer.StatusCode/100 != 2 {
					b.Error(answer, err)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			}
		})
	}
	for len(events) > 0 {
		var body []byte
		for _, e := range events[:min(rows, len(events))] {
			body = append(append(body, e.json...), '\n')
		}
		events = events[min(rows, len(events)):]
		bodies <- body
	}
	close(bodies)
	senders.Wait()
}
