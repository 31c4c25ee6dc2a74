package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/transport"
)

// topicPatience is for how long an internal topic may take no record, or no broker
// answer, before the process is not ready: an election is shorter.
const topicPatience = 15 * time.Second

// topicHealth is the observed state of the internal topics.
type topicHealth struct {
	mu      sync.Mutex
	since   map[string]time.Time // guarded by mu; by topic: since when it takes no record
	faults  []*transport.TopicFault
	away    error           // guarded by mu; why no broker answers
	gone    time.Time       // guarded by mu; since when
	missing map[string]bool // of the monitor alone; seen missing at the look before
}

// blocked returns why internal topics have taken no record for too long, nil if they do.
func (h *topicHealth) blocked(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away != nil {
		if now.Sub(h.gone) < topicPatience {
			return nil
		}
		return fmt.Errorf("the brokers do not answer: %w", h.away)
	}
	var errs []error
	for _, f := range h.faults {
		if now.Sub(h.since[f.Topic]) >= topicPatience {
			errs = append(errs, f)
		}
	}
	return errors.Join(errs...)
}

// answered notes whether brokers answer; err says why they do not.
func (h *topicHealth) answered(err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away == nil {
		h.gone = now
	}
	h.away = err
}

// saw records the present faults.
func (h *topicHealth) saw(faults []*transport.TopicFault, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := make(map[string]time.Time, len(faults))
	for _, f := range faults {
		began, known := h.since[f.Topic]
		if !known {
			began = now
		}
		since[f.Topic] = began
	}
	h.faults, h.since = faults, since
}

// lookAtTopics finds internal topics that take no record. One that is gone, and was
// at the look before, is made again: producers and consumers find it, and what it
// held is lost or decided again as after any loss of records.
func (m *monitor) lookAtTopics(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchPeriod)
	defer cancel()
	faults, err := m.logs.Faults(ctx, m.cfg.Kafka.Inbox.Topic, m.cfg.Kafka.Changes.Topic)
	m.topics.answered(err, time.Now())
	m.noteTopics(faults, err, time.Now())
	if err != nil {
		return
	}
	m.topics.saw(faults, time.Now())
	missing := map[string]bool{}
	var again []transport.TopicSpec
	for _, f := range faults {
		if missing[f.Topic] = f.Missing; !f.Missing || !m.topics.missing[f.Topic] {
			continue
		}
		for _, spec := range assemble.Topics(m.Config()) {
			if spec.Name == f.Topic {
				again = append(again, spec)
			}
		}
	}
	m.topics.missing = missing
	if len(again) == 0 {
		return
	}
	if err := m.logs.Ensure(ctx, again); err != nil {
		m.log.Warn("the topic cannot be made yet; trying again", "error", err)
		return
	}
	for _, spec := range again {
		m.log.Error("the topic was deleted: it is made again, and what only it held is lost, or decided again if it is the changes log", "topic", spec.Name)
	}
}
