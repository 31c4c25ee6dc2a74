package pipeline

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/transport"
)

// blockage is the reason that keeps a process from its work, and since when it does.
type blockage struct {
	mu     sync.Mutex
	reason string
	since  time.Time
}

// note records the present reason and returns since when it holds.
func (b *blockage) note(reason string, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason != b.reason {
		b.reason, b.since = reason, now
	}
	return b.since
}

// healthNow returns how the process and its services are doing.
func (m *monitor) healthNow() operate.Health {
	now := time.Now()
	o := operate.Observed{Conditions: m.stages.conditions(), Problems: m.outages.items()}
	o.Reason, o.Blocked = m.ready()
	o.Since = m.blockage.note(o.Reason, now)
	if began := m.outages.since("store"); o.Reason == blockedStore && !began.IsZero() {
		o.Since = began
	}
	if due := m.backfill.Load(); due != nil {
		o.Pending = append(o.Pending, *due)
	}
	if items := m.letters.Load(); items != nil {
		o.Pending = append(o.Pending, *items...)
	}
	if d := m.stages.decider.Load(); d != nil {
		if r, long := d.LongInHand(now); long {
			o.Problems = append(o.Problems, operate.Item{
				What: "inbox", Level: operate.LevelDegraded, Since: r.Since, Why: r.String(),
				Do: "simplify the filters and fields that read this document; the rest of the partition waits for it",
			})
		}
	}
	return operate.HealthOf(o, now)
}

// noteSources records which sources fail at present.
func (m *monitor) noteSources(now time.Time) {
	running := map[string]bool{}
	for _, s := range m.stages.sources() {
		what := "source " + s.name
		running[what] = true
		err, do := s.failing(), ""
		if err != nil {
			do = "it waits for " + s.Source.(sources.Failing).WaitsFor() + "; retried automatically (weir doctor examines it)"
		}
		m.outages.note(what, err, do, now)
	}
	m.outages.end("source ", running, now)
}

// noteTopics records whether the brokers answer, and which internal topics take no record.
func (m *monitor) noteTopics(faults []*transport.TopicFault, err error, now time.Time) {
	m.outages.note("kafka", err, "bring the brokers back, or correct kafka.brokers; retried automatically", now)
	if err != nil {
		return
	}
	failing := map[string]bool{}
	for _, f := range faults {
		what := "topic " + f.Topic
		failing[what] = true
		m.outages.note(what, f, "bring the topic's brokers back, or give it as many replicas as it wants; retried automatically", now)
	}
	m.outages.end("topic ", failing, now)
}

// serveHealth answers /readyz: 200 while the process does its work, also with failing
// services, else 503. Errors may name servers, so only callers with the token get them.
func serveHealth(w http.ResponseWriter, h operate.Health, whole bool) {
	if !whole {
		h = operate.Health{Level: h.Level}
	}
	w.Header().Set("Content-Type", "application/json")
	if h.Level == operate.LevelDown {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(h)
}
