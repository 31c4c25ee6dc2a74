package simulation

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// maxChange bounds a change, in bytes. Documents are smaller by far, unless they have
// a value of that length.
const maxChange = 800

// feed writes the events of the sources.
func (w *world) feed() {
	d := w.dice("events")
	seq, deletes := 100, 0.06
	if w.setup.purges > 0 {
		deletes = 0.3
	}
	var sent []transport.Record
	for i := range w.setup.events {
		time.Sleep(d.upTo(2 * w.setup.span / time.Duration(w.setup.events)))
		entity := fmt.Sprint("B-", d.n(w.setup.entities))
		if w.database != nil && d.chance(0.5) {
			w.database.write(d, entity, i+1)
			continue
		}
		if d.chance(0.35) && w.setup.variant.lab {
			value := fmt.Appendf(nil, `{"id":%q,"weight":%d,"n":%d}`, entity, 1+d.n(3), i)
			if d.chance(0.1) {
				value = fmt.Appendf(nil, `{"id":%q,"op":"delete","n":%d}`, entity, i)
			}
			w.sources[1].append(transport.Record{Topic: "lab", Key: []byte(entity), Value: value})
			continue
		}
		if len(sent) > 0 && d.chance(0.15) { // the producer repeats itself
			w.sources[0].append(sent[d.n(len(sent))])
			continue
		}
		r := transport.Record{Topic: "registry", Key: []byte(entity)}
		seq += 1 + d.n(3)
		number, text := seq, ""
		if w.setup.sequences {
			if d.chance(0.15) { // late
				number -= d.n(8)
			}
			text = fmt.Sprintf(`,"seq":"%d"`, number)
		}
		origin := "EC"
		if d.chance(0.12) {
			origin = "XX"
		}
		level := fmt.Sprint(1 + d.n(3))
		if w.setup.oversizes && d.chance(0.2) {
			level = strconv.Quote(strings.Repeat(level, maxChange))
		}
		switch {
		case d.chance(deletes): // a tombstone
		case d.chance(0.06):
			r.Value = fmt.Appendf(nil, `{"id":%q,"op":"delete","event":"e%d"%s}`, entity, i, text)
		case d.chance(0.2): // no member in the order of the others, and nothing that anybody sees
			r.Value = fmt.Appendf(nil, `{"note":%d,"origin":%q,"event":"e%d","ripeness_level":%s,"id":%q%s}`, d.n(9), origin, i, level, entity, text)
		default:
			r.Value = fmt.Appendf(nil, `{"id":%q,"origin":%q,"ripeness_level":%s,"event":"e%d"%s}`, entity, origin, level, i, text)
		}
		sent = append(sent, r)
		w.sources[0].append(r)
	}
}

// housekeep asks the owners of their partitions now and then that tombstones go;
// it may ask twice, as two processes do, and be late.
func (w *world) housekeep() {
	d := w.dice("housekeeping")
	var asked sync.WaitGroup
	defer asked.Wait()
	for range w.setup.purges {
		time.Sleep(d.upTo(3 * w.setup.span / time.Duration(w.setup.purges)))
		heard := w.mem.delivered(w.newest().plan.Services)
		stones, _ := w.mem.Tombstones(context.Background(), time.Now(), store.Tombstone{}, 100)
		for _, stone := range stones {
			below := min(heard[int32(w.inbox.partitionOf([]byte(stone.Entity)))], change.NewVersion(stone.Version.Generation()+1, 0))
			if stone.Version >= below {
				continue
			}
			w.count("purge")
			if w.rules.PurgesPast {
				_ = w.mem.run(context.Background(), func() error { delete(w.mem.state.entities, stone.Entity); return nil })
				continue
			}
			key, head, value, err := change.EncodeRecord(change.Record{Entity: stone.Entity, Control: &change.Control{Action: change.Purge, Version: below, Actor: change.Housekeeping}})
			if err != nil {
				panic(err) // it keeps the rules of the inbox
			}
			for range 1 + d.n(2) {
				late := d.upTo(w.setup.span / 4)
				asked.Go(func() {
					time.Sleep(late)
					w.inbox.append(transport.Record{Topic: inboxTopic, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}})
				})
			}
		}
	}
}

// disturb does what servers and operators do to processes.
func (w *world) disturb() {
	d := w.dice("disturbances")
	var b backup
	for n := range w.setup.disturbances {
		time.Sleep(d.upTo(2 * w.setup.span / time.Duration(w.setup.disturbances)))
		kind := w.disturbance(d, n)
		switch {
		case w.setup.renews && n == w.setup.disturbances/3:
			w.renew()
		case w.setup.deploys && n == w.setup.disturbances/2:
			w.deploy(d)
		case kind == backedUp:
			b = w.backup()
		case kind == restored:
			w.restoreFrom(b)
		case kind < backedUp:
			w.disturbProcesses(d, kind)
		default:
			w.disturbLogs(d, kind)
		}
	}
}

// Kinds of disturbances. The oldest frames are gone as often as three others.
const (
	workStirred = iota
	ingestStirred
	crashed
	restarted
	frozen
	backedUp
	restored
	partitionStuck
	framesGone
	logGone = framesGone + 3
)

// disturbance draws the kind of the n-th disturbance, of those that the schedule may have.
func (w *world) disturbance(d *dice, n int) int {
	s := &w.setup
	kinds := framesGone
	if s.forgets {
		kinds = logGone + 1
	}
	kind := d.n(kinds)
	if s.purges > 0 && s.forgets && kind == restored {
		kind = crashed // the deletion is delivered again, and purged before: the log alone tells of it
	}
	if s.gentle {
		kind = ingestStirred
	}
	if s.restores && n == 0 {
		kind = backedUp
	} else if s.restores && n == s.disturbances-1 {
		kind = restored
	}
	if (s.deploys || s.renews) && (kind == backedUp || kind == restored) {
		kind = crashed // a lost future with another configuration or generation is another matter
	}
	if s.bare && (kind == frozen || kind == restored) {
		kind = crashed
	}
	return kind
}

// disturbProcesses moves partitions, or ends or stops a process.
func (w *world) disturbProcesses(d *dice, kind int) {
	switch kind {
	case workStirred:
		if !w.setup.polite() {
			w.count("rebalance")
			w.works.stir()
			return
		}
		fallthrough
	case ingestStirred:
		w.count("rebalance")
		w.ingests.stir()
		return
	}
	p := w.pick(d)
	switch {
	case p == nil:
	case kind == crashed:
		p.crash()
	case kind == restarted:
		w.restart(p, d.upTo(time.Second))
	case kind == frozen:
		w.hang(p, d.upTo(3*time.Second), d.upTo(time.Second))
	}
}

// disturbLogs lets a partition take nothing, or a log lose records.
func (w *world) disturbLogs(d *dice, kind int) {
	switch kind {
	case partitionStuck:
		part, length := d.n(w.setup.inboxParts), d.upTo(3*time.Second)
		w.note("partition %d of the inbox takes nothing for %v", part, length)
		w.inbox.sticks(part, length)
	case logGone:
		for part := range w.setup.inboxParts {
			w.forget(part, math.MaxInt)
		}
	default:
		w.forget(d.n(w.setup.inboxParts), 1+d.n(8))
	}
}

// backup is a copy of the store, and of what customers have that are in its database.
type backup struct {
	taken bool
	store Snapshot
	had   []map[string]oracle.Record
}

func (w *world) backup() backup {
	b := backup{taken: true}
	b.store, _ = w.mem.Snapshot(context.Background())
	for _, c := range w.sinks {
		b.had = append(b.had, c.backup())
	}
	w.note("backup")
	return b
}

// restoreFrom puts a backup back, if there is one.
func (w *world) restoreFrom(b backup) {
	if !b.taken || w.setup.gentle {
		return
	}
	w.count("restore")
	w.note("restore")
	w.mem.restoreFrom(b.store, w.rules.KeepsProgress)
	for i, c := range w.sinks {
		if w.setup.sameDatabase {
			c.restore(b.had[i])
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restore = true
}

// deploy brings another configuration to one process after the other, by a restart or a reload. Those that
// start meanwhile have it already.
func (w *world) deploy(d *dice) {
	w.count("deploy")
	w.note("another configuration: %+v", w.setup.next)
	if err := w.activate(w.later); err != nil {
		panic(err) // the store's part does not fail
	}
	w.since = w.decidedTo()
	w.deployed.Store(true)
	for i := range w.slots {
		time.Sleep(d.upTo(time.Second))
		w.mu.Lock()
		p := w.slots[i]
		w.mu.Unlock()
		switch {
		case p == nil || p.now() == w.later.plan:
		case d.chance(0.5):
			p.reload(w.later.plan, d)
		default:
			w.restart(p, d.upTo(time.Second))
		}
	}
}

// renew opens another generation of the inbox. Deciders hear of it from the store.
func (w *world) renew() {
	if len(w.decidedTo()) < w.setup.inboxParts {
		return // what has no watermark yet would be read from its beginning
	}
	ctx := context.Background()
	known, err := w.mem.KnownInbox(ctx, inboxTopic, w.inbox.id)
	if err == nil {
		_, err = w.mem.RenewInbox(ctx, known, nil, nil)
	}
	if err != nil {
		panic(err) // the store's part does not fail
	}
	w.count("generation")
	w.note("a new generation of the inbox")
	w.second = w.decidedTo()
	w.renewed.Store(true)
}

// decidedTo returns the offset behind the last record that was decided, by partition.
func (w *world) decidedTo() map[int32]int64 {
	to := map[int32]int64{}
	_ = w.mem.look(context.Background(), func(s *state) {
		for p, at := range s.newest() {
			to[p] = at.Watermark.Offset()
		}
	})
	return to
}

// forget drops the oldest frames of a partition.
func (w *world) forget(part, n int) {
	if n = w.mem.forget(int32(part), n); n > 0 {
		w.count("retention")
		w.note("%d frames of partition %d are gone", n, part)
	}
}

func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[fault]++
}

func (w *world) pick(d *dice) *process {
	live := w.live()
	if len(live) == 0 {
		return nil
	}
	return live[d.n(len(live))]
}

// restart ends a process in order and starts another one later.
func (w *world) restart(p *process, pause time.Duration) {
	w.count("restart")
	w.empty(p)
	w.spawn(func() {
		p.shutdown()
		time.Sleep(pause)
		w.start(p.slot)
	})
}

// hang freezes a process for longer than its groups wait for it.
func (w *world) hang(p *process, length, timeout time.Duration) {
	w.count("freeze")
	w.note("%s freezes for %v", p.name, length)
	p.freeze(length)
	members := p.all()
	if timeout >= length {
		return
	}
	w.spawn(func() {
		time.Sleep(timeout)
		for _, m := range members {
			m.g.evict(m)
		}
		time.Sleep(length - timeout + time.Millisecond)
		for _, m := range members {
			m.g.rejoin(m)
		}
	})
}
