package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/transport"
)

// topic is a log with partitions. It forgets what it is told to.
type topic struct {
	name string

	mu    sync.Mutex
	id    string          // guarded by mu
	parts [][]entry       // guarded by mu; from first on
	first []int64         // guarded by mu; the oldest offset
	grown []chan struct{} // closed when the partition grows; nil while nobody waits for it
}

type entry struct {
	transport.Record
	at time.Time
}

func newTopic(name, id string, parts int) *topic {
	return &topic{name: name, id: id, parts: make([][]entry, parts), first: make([]int64, parts), grown: make([]chan struct{}, parts)}
}

func (t *topic) partitionOf(key []byte) int {
	h := fnv.New32a()
	_, _ = h.Write(key)
	return int(h.Sum32()) % len(t.parts)
}

func (t *topic) append(r transport.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := int(r.Partition)
	if !r.Pinned {
		p = t.partitionOf(r.Key)
	}
	t.parts[p] = append(t.parts[p], entry{r, time.Now().UTC().Truncate(time.Millisecond)})
	if t.grown[p] != nil {
		close(t.grown[p])
		t.grown[p] = nil
	}
}

// has reports whether there is a record at an offset, and gives what is closed
// when there is more otherwise.
func (t *topic) has(part int, offset int64) (bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset < t.first[part]+int64(len(t.parts[part])) {
		return true, nil
	}
	if t.grown[part] == nil {
		t.grown[part] = make(chan struct{})
	}
	return false, t.grown[part]
}

// from gives up to n records, from an offset on, or from the oldest one that is
// left, and the offset of the first.
func (t *topic) from(part int, offset int64, n int) ([]entry, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	offset = max(offset, t.first[part])
	there := t.parts[part][min(offset-t.first[part], int64(len(t.parts[part]))):]
	return there[:min(n, len(there))], offset
}

// start returns the offset that a consumer begins at that wants a record which may
// be gone, or be one of another log of this name; and the log's end and identity.
func (t *topic) start(part int, wanted int64) (start, end int64, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	start, end = wanted, t.first[part]+int64(len(t.parts[part]))
	if wanted < t.first[part] || wanted > end {
		start = t.first[part]
	}
	return start, end, t.id
}

// forget removes up to n of the oldest records of a partition, and tells how many.
func (t *topic) forget(part, n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = min(n, len(t.parts[part]))
	t.parts[part] = t.parts[part][n:]
	t.first[part] += int64(n)
	return n
}

// again makes the log anew, without records.
func (t *topic) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id += "+"
	for p := range t.parts {
		t.parts[p], t.first[p] = nil, 0
	}
}

func (t *topic) end(part int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first[part] + int64(len(t.parts[part]))
}

// size is how many records were ever appended to a log that was not made anew.
func (t *topic) size() int {
	n := 0
	for p := range t.parts {
		n += int(t.end(p))
	}
	return n
}

// topicOf finds a topic by name.
func (w *world) topicOf(name string) *topic {
	if name == inboxTopic {
		return w.inbox
	}
	return w.changes
}

var (
	errBroker = errors.New("the broker did not answer")
	errBroken = errors.New("an earlier batch failed")
)

// request brings records to the broker. Once it is on its way the end of the
// process does not always stop it.
func (p *process) request(d *dice, records []transport.Record) error {
	p.w.flying.Add(1)
	defer p.w.flying.Add(-1)
	if err := p.ready(); err != nil {
		return err
	}
	time.Sleep(d.trip())
	p.thaw()
	if p.dead.Load() && !d.chance(landing) {
		return errDead
	}
	p.w.point(p)
	if p.dead.Load() && !d.chance(landing) {
		return errDead
	}
	keep, err := len(records), error(nil)
	switch {
	case p.w.fault(d, "append lost", 0.7):
		keep, err = 0, errBroker
	case p.w.fault(d, "append cut off", 0.7):
		keep, err = d.n(len(records)+1), errBroker
	case p.w.fault(d, "append done, answer lost", 0.7):
		err = errBroker
	}
	for _, r := range records[:keep] {
		p.w.topicOf(r.Topic).append(r)
		if p.w.traced {
			p.w.note("%s appends to %s/%d: %s", p.name, r.Topic, r.Partition, about(r))
		}
	}
	p.w.point(p)
	time.Sleep(d.trip())
	p.thaw()
	if p.dead.Load() {
		return errDead
	}
	return err
}

// about says what a record is about: an inbox record has a key, one of the changes
// log is a frame.
func about(r transport.Record) string {
	if r.Topic == inboxTopic {
		return string(r.Key)
	}
	f, err := change.ParseFrame(r.Value)
	if err != nil {
		return err.Error()
	}
	text := []string{fmt.Sprintf("%v to %v behind %v:", f.From, f.To, f.Prev)}
	for i := range f.Slices {
		for c, err := range f.Slices[i].All("") {
			if err != nil {
				return err.Error()
			}
			text = append(text, fmt.Sprintf("%d %s %v,", f.Slices[i].Service, c.Entity, c.Version))
		}
	}
	return strings.Join(text, " ")
}

// landing is how often a request that was on its way when its process died
// takes effect all the same.
const landing = 0.4

// appender is a synchronous producer: ingest's and deliver's.
type appender struct {
	p    *process
	dice *dice
}

var _ transport.Appender = (*appender)(nil)

func (a *appender) Append(ctx context.Context, records []transport.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	result := make(chan error, 1)
	a.p.w.spawn(func() { result <- a.p.request(a.dice, records) })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx) // it may land yet
	}
}

// producer appends batches one after the other and none behind one that failed.
type producer struct {
	p    *process
	dice *dice
	link *laneLink

	mu     sync.Mutex
	queue  []batch
	busy   bool
	broken bool
}

type batch struct {
	records []transport.Record
	done    func(error)
}

var _ decide.Producer = (*producer)(nil)

func (q *producer) AppendAsync(_ context.Context, records []transport.Record, done func(error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.p.w.rules.MarkerFirst {
		early := done
		q.p.w.spawn(func() { early(nil) })
		done = func(error) {}
	}
	if q.broken {
		q.p.w.spawn(func() { done(errBroken) })
		return
	}
	q.queue = append(q.queue, batch{records, done})
	if !q.busy {
		q.busy = true
		q.p.w.spawn(q.run)
	}
}

func (q *producer) run() {
	for {
		q.mu.Lock()
		if len(q.queue) == 0 {
			q.busy = false
			q.mu.Unlock()
			return
		}
		b := q.queue[0]
		q.queue = q.queue[1:]
		broken := q.broken
		q.mu.Unlock()
		err := errBroken
		if !broken {
			err = q.p.request(q.dice, b.records)
		}
		if err != nil {
			q.mu.Lock()
			q.broken = true
			q.mu.Unlock()
			q.link.fails()
		}
		b.done(err)
	}
}

func (q *producer) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.broken = false
}

// Close has nothing to wait for: what is not acknowledged stays in the outbox.
func (q *producer) Close(context.Context) error { return nil }
