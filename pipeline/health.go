package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/sources"
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
	o := operate.Observed{Conditions: m.work.conditions(), Problems: m.outages.items()}
	o.Reason, o.Blocked = m.ready()
	o.Since = m.blockage.note(o.Reason, now)
	if o.Blocked != nil {
		o.NextTry = now.Add(watchPeriod)
	}
	for _, server := range map[string][]string{blockedStore: {"store"}, blockedTopic: {"kafka", "topic "}}[o.Reason] {
		if began, next := m.outages.times(server); !began.IsZero() {
			o.Since, o.NextTry = began, next
		}
	}
	if now := m.active.now.Load(); now != nil && now.plan != nil { // else it is starting
		o.Configured = len(now.plan.Services)
	}
	o.Pending = m.gauges.refusals.items()
	if lost := m.repairs.Load(); lost != nil {
		o.Pending = append(o.Pending, *lost...)
	}
	if unmet := m.unmet.Load(); unmet != nil {
		o.Pending = append(o.Pending, *unmet...)
	}
	if due := m.backfill.Load(); due != nil {
		o.Pending = append(o.Pending, *due)
	}
	for _, s := range m.ingest.sources() {
		if item, shown := sourceItem(s.name, s.Source); shown {
			o.Pending = append(o.Pending, item)
		}
	}
	if d := m.work.decider.Load(); d != nil {
		if r, long := d.LongInHand(now); long {
			o.Problems = append(o.Problems, operate.Item{
				What: "inbox", Level: operate.LevelDegraded, Since: r.Since, Why: r.String(),
				Do: "simplify the filters and fields that read this document; the rest of the partition waits for it",
			})
		}
	}
	return operate.HealthOf(o, now)
}

// sourceItem is the progress of a source that reads the rows of its table, or says which other process
// reads it.
func sourceItem(name string, s sources.Source) (item operate.Item, shown bool) {
	if by := readBy(s); by != "" {
		return operate.Item{What: "source " + name, Level: operate.LevelOK, Why: by}, true
	}
	reader, is := s.(sources.Snapshotting)
	if !is {
		return item, false
	}
	read, rows, running := reader.Snapshot()
	return operate.Item{
		What: "source " + name, Level: operate.LevelOK, Queued: rows - read,
		Why: fmt.Sprintf("reading the rows of its table: %s of about %s (%d %%)", humanize.Comma(read), humanize.Comma(rows), 100*read/max(1, rows)),
	}, running
}

// readBy says which other process of the pipeline reads a source; empty without one.
func readBy(s sources.Source) string {
	if standby, is := s.(sources.Standby); is {
		return standby.ReadBy()
	}
	return ""
}

// ProcessName is the name of this process in its reports: host and number.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// status returns healthNow with dead letters, retried changes and reports of other processes from
// the store, unless that is unreachable: a probe must not wait for it.
func (m *monitor) status() operate.Health {
	h := m.healthNow()
	if m.store == nil || h.Reason == blockedStore || h.Reason == blockedDisk { // nil: not open yet
		return h
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	if items, err := operate.LetterItems(ctx, m.store); err == nil {
		h.Pending = append(h.Pending, items...)
	}
	if m.cfg.Kafka.Embedded() {
		return h // alone
	}
	if all, err := operate.Processes(ctx, m.store); err == nil {
		h.AddElsewhere(all, ProcessName(), time.Now())
	}
	return h
}

// statusTimeout bounds the wait of a status for a store that does not answer.
const statusTimeout = 2 * time.Second

// noteSources records which sources fail at present.
func (m *monitor) noteSources(now time.Time) {
	running, failing := map[string]bool{}, map[string]float64{}
	for _, s := range m.ingest.sources() {
		what := "source " + s.name
		running[what] = true
		failing[s.name] = 0
		do := ""
		input, err := s.failing()
		if err != nil {
			failing[s.name] = 1
			do = remedy.Of(what, err) + "; it waits for " + input + ", and retries automatically"
		}
		m.outages.note(what, err, do, now)
	}
	m.outages.end("source ", running, now)
	m.gauges.failing.set(failing)
}

// noteTopics records whether the brokers answer, and which internal topics take no record.
func (m *monitor) noteTopics(faults []*transport.TopicFault, err error, now time.Time) {
	do := ""
	if err != nil {
		do = remedy.Of("kafka", err) + " (kafka.brokers); retried automatically"
	}
	m.outages.note("kafka", err, do, now)
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

// topicPatience is for how long an internal topic may take no record, or no broker
// answer, before the process is not ready: an election is shorter.
const topicPatience = 15 * time.Second

// topicsBlocked returns why internal topics have taken no record for too long, nil if they do.
func (m *monitor) topicsBlocked(now time.Time) error {
	if err := m.outages.lasting("kafka", topicPatience, now); err != nil {
		return fmt.Errorf("the brokers do not answer: %w", err)
	}
	return m.outages.lasting("topic ", topicPatience, now)
}

// checkTopics finds internal topics that take no record. One that is missing for the second
// time is created again: its records are lost or decided again as after any loss of records.
func (m *monitor) checkTopics(ctx context.Context) {
	var names []string
	for _, spec := range assemble.Topics(m.cfg) {
		names = append(names, spec.Name)
	}
	faults, err := m.logs.Faults(ctx, names...)
	if errors.Is(context.Cause(ctx), context.Canceled) { // the process ends
		return
	}
	m.noteTopics(faults, err, time.Now())
	if err != nil {
		return
	}
	missing := map[string]bool{}
	var again []transport.TopicSpec
	for _, f := range faults {
		if missing[f.Topic] = f.Missing; !f.Missing || !m.missing[f.Topic] {
			continue
		}
		for _, spec := range assemble.Topics(m.active.config()) {
			if spec.Name == f.Topic {
				again = append(again, spec)
			}
		}
	}
	m.missing = missing
	if len(again) == 0 {
		return
	}
	if err := m.logs.Ensure(ctx, again); err != nil {
		m.log.Warn("the topic cannot be created yet; trying again", "event", "topic.not_created", "error", err)
		return
	}
	for _, spec := range again {
		m.log.Error("the topic was deleted and is created again: its records are lost, or decided again if it is the changes log", "event", "topic.recreated", "topic", spec.Name)
	}
}
