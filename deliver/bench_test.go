package deliver_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
)

// BenchmarkOneEntityFails delivers a backlog of frames of 100 entities, of which one fails at
// every attempt; changes/s are those of the other 99. Compare a failure with none. Beyond
// 100 frames a log sink has as many rows of that entity, and each frame makes a dead letter.
func BenchmarkOneEntityFails(b *testing.B) {
	failures := []struct {
		name  string
		err   error
		hangs time.Duration
	}{{name: "none"}, {name: "broken connection", err: errors.New("connection reset by peer")}, {name: "hang", err: errors.New("deadline exceeded"), hangs: 20 * time.Millisecond}}
	for _, status := range []int{500, 502, 503, 504, 429} {
		f := failures[0]
		f.name, f.err = fmt.Sprint(status), errors.New(http.StatusText(status))
		failures = append(failures, f)
	}
	for kind, traits := range map[string]sinks.Traits{"state": state, "log": logOf(100)} {
		for _, f := range failures {
			b.Run(kind+"/"+f.name, func(b *testing.B) {
				w := newWorld(b, service)
				for n := range b.N {
					var frame []change.Change
					for e := range 100 {
						frame = append(frame, of(service, fmt.Sprint("e", e), int64(100*n+e)))
					}
					w.publish(frame...)
				}
				b.ResetTimer()
				p := w.start(map[string]sinks.Traits{service: traits}, func(o *deliver.Options) { o.Services[0].Retry = deliver.Retry{} })
				last, done := 0, make(chan struct{})
				p.sinks[service].answer(func(changes []change.Change) error {
					<-time.After(2 * time.Millisecond) // the way to the target
					failed := map[int]error{}
					for i, c := range changes {
						if c.Entity == "e0" && f.err != nil {
							<-time.After(f.hangs)
							failed[i] = &sinks.Error{Class: sinks.Retry, Op: "post", Err: f.err}
						} else if c.Entity != "e0" && c.Version >= at(int64(100*(b.N-1))) {
							if last++; last == 99 {
								close(done)
							}
						}
					}
					if len(failed) == 0 {
						return nil
					}
					return &sinks.BatchError{Failed: failed}
				})
				<-done
				b.ReportMetric(99*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				b.StopTimer()
				if err := p.stop(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkGuard delivers frames of 100 updates. The guard that is on by default counts
// retractions and costs updates nothing.
func BenchmarkGuard(b *testing.B) {
	for name, guard := range map[string]deliver.Guard{
		"off": {}, "retract": {Retract: 0.05, Min: 50, Window: 10 * time.Minute}, "update": {Retract: 0.05, Update: 0.99, Min: 1000, Window: 10 * time.Minute},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, service)
			for n := range b.N {
				var frame []change.Change
				for e := range 100 {
					frame = append(frame, of(service, fmt.Sprint("e", e), int64(100*n+e)))
				}
				w.publish(frame...)
			}
			b.ResetTimer()
			p := w.start(map[string]sinks.Traits{service: logOf(100)}, guarding(guard))
			last, done := 0, make(chan struct{})
			p.sinks[service].answer(func(changes []change.Change) error {
				if last += len(changes); last == 100*b.N {
					close(done)
				}
				return nil
			})
			<-done
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(100*b.N), "ns/change")
			b.StopTimer()
			if err := p.stop(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
