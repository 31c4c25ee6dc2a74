package simulation

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/transport"
)

// topic is a log with partitions. It loses records on request.
type topic struct {
	name string

	mu    sync.Mutex
	id    string          // guarded by mu
	parts [][]entry       // guarded by mu; from first on
	first []int64         // guarded by mu; the oldest offset
	grown []chan struct{} // closed when the partition grows; nil while nobody waits for it
	until []time.Time     // guarded by mu; the partition takes nothing until then
	gone  bool            // guarded by mu; it is deleted
	// Of the changes log: how far frames were ever appended, and the first one that
	// before its predecessor.
	seen  []change.Version // guarded by mu
	early error            // guarded by mu
}

type entry struct {
	transport.Record
	at time.Time
}

func newTopic(name, id string, parts int) *topic {
	return &topic{name: name, id: id, parts: make([][]entry, parts), first: make([]int64, parts), until: make([]time.Time, parts), seen: make([]change.Version, parts), grown: make([]chan struct{}, parts)}
}

func (t *topic) partitionOf(key []byte) int {
	return int(transport.PartitionOf(key, int32(len(t.parts))))
}

func (t *topic) append(r transport.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := int(r.Partition)
	if !r.Pinned {
		p = t.partitionOf(r.Key)
	}
	if t.name == changesTopic {
		t.follows(p, r.Value)
	}
	t.parts[p] = append(t.parts[p], entry{r, time.Now().UTC().Truncate(time.Millisecond)})
	if t.grown[p] != nil {
		close(t.grown[p])
		t.grown[p] = nil
	}
}

// follows notes a frame. No frame may come before its predecessor in the
// log: only repetitions may disturb the order. The caller
// holds mu.
func (t *topic) follows(part int, frame []byte) {
	f, err := change.ParseFrameHeader(frame)
	if err != nil {
		panic(err) // decide made it
	}
	if f.Prev > t.seen[part] && t.early == nil {
		t.early = fmt.Errorf("%s/%d: a frame from %v to %v goes on from %v, and stands behind %v", t.name, part, f.From, f.To, f.Prev, t.seen[part])
	}
	if f.Last {
		t.seen[part] = max(t.seen[part], f.To)
	}
}

// has reports whether there is a record at an offset, and returns a channel that is closed
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

// from returns up to n records, from an offset on, or from the oldest one that is
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

// sticks lets a partition take no record for a while.
func (t *topic) sticks(part int, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until[part] = time.Now().Add(d)
}

func (t *topic) stuck(part int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.until[part])
}

// vanish deletes the topic.
func (t *topic) vanish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	for p := range t.parts {
		t.parts[p], t.first[p] = nil, 0
	}
}

func (t *topic) missing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// again makes the log anew, without records.
func (t *topic) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id += "+"
	t.gone = false
	for p := range t.parts {
		t.parts[p], t.first[p] = nil, 0
	}
}

func (t *topic) end(part int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first[part] + int64(len(t.parts[part]))
}

// size is how many records were ever appended to a log that was not re-created.
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

var errBroker = errors.New("the broker did not answer")

// request brings records of one partition to the broker, and reports how many of
// them it has said that it has. Once it is on its way the end of the process does
// not always stop it.
func (p *process) request(d *dice, t *topic, part int, records []transport.Record) (int, error) {
	p.w.flying.Add(1)
	defer p.w.flying.Add(-1)
	lost := func() bool { return p.dead.Load() && !d.chance(landing) }
	if err := p.ready(); err != nil {
		return 0, err
	}
	time.Sleep(d.trip())
	p.thaw()
	if lost() {
		return 0, errDead
	}
	p.w.point(p)
	if lost() {
		return 0, errDead
	}
	for t.stuck(part) { // clients never give up
		p.w.count("partition takes nothing")
		time.Sleep(50*time.Millisecond + d.upTo(50*time.Millisecond))
		p.thaw()
		if p.dead.Load() {
			return 0, errDead
		}
	}
	keep, said, err := len(records), 0, error(nil)
	switch {
	case t.missing():
		p.w.count("topic missing")
		keep, err = 0, kerr.UnknownTopicID
	case p.w.fault(d, "append lost", 0.7):
		keep, err = 0, errBroker
	case p.w.fault(d, "append cut off", 0.7):
		keep = d.n(len(records) + 1)
		said, err = keep, errBroker
	case p.w.fault(d, "append done, answer lost", 0.7):
		err = errBroker
	default:
		said = keep
	}
	if errors.Is(err, errBroker) && d.chance(0.5) {
		err = kerr.OutOfOrderSequenceNumber
	}
	for _, r := range records[:keep] {
		t.append(r)
		if p.w.traced {
			p.w.note("%s appends to %s/%d: %s", p.name, r.Topic, r.Partition, about(r))
		}
	}
	p.w.point(p)
	time.Sleep(d.trip())
	p.thaw()
	if p.dead.Load() {
		return 0, errDead
	}
	return said, err
}

// about describes a record: an inbox record has a key, one of the changes
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
