package simulation

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// topic is a log with partitions.
type topic struct {
	name, id string

	mu    sync.Mutex
	parts [][]entry       // guarded by mu
	grown []chan struct{} // closed when the partition grows; nil while nobody waits for it
	until []time.Time     // guarded by mu; the partition takes nothing until then
}

type entry struct {
	transport.Record
	at time.Time
}

func newTopic(name, id string, parts int) *topic {
	return &topic{name: name, id: id, parts: make([][]entry, parts), until: make([]time.Time, parts), grown: make([]chan struct{}, parts)}
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
	t.parts[p] = append(t.parts[p], entry{r, time.Now().UTC().Truncate(time.Millisecond)})
	if t.grown[p] != nil {
		close(t.grown[p])
		t.grown[p] = nil
	}
}

// has reports whether there is a record at an offset, and returns a channel that is closed
// when there is more otherwise.
func (t *topic) has(part int, offset int64) (bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset < int64(len(t.parts[part])) {
		return true, nil
	}
	if t.grown[part] == nil {
		t.grown[part] = make(chan struct{})
	}
	return false, t.grown[part]
}

// from returns up to n records, from an offset on.
func (t *topic) from(part int, offset int64, n int) []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := t.parts[part][min(offset, int64(len(t.parts[part]))):]
	return there[:min(n, len(there))]
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

func (t *topic) end(part int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.parts[part]))
}

// size is how many records the topic has.
func (t *topic) size() int {
	n := 0
	for p := range t.parts {
		n += int(t.end(p))
	}
	return n
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
			p.w.note("%s appends to %s/%d: %s", p.name, r.Topic, r.Partition, r.Key)
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

// landing is how often a request that was on its way when its process died
// takes effect all the same.
const landing = 0.4
