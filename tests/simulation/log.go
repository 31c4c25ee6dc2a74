package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/transport"
)

// changesLog is the stage's access to the changes log beside its subscription.
type changesLog struct {
	p    *process
	name string
	dice *dice
	made int
}

var _ deliver.Log = (*changesLog)(nil)

// Offsets implements deliver.Log.
func (l *changesLog) Offsets(ctx context.Context, partition int32) (start, end int64, err error) {
	p := l.p
	if err := p.reach(ctx, l.dice.trip()); err != nil {
		return 0, 0, err
	}
	if p.w.fault(l.dice, "offsets fail", 1) || p.w.changes.missing() {
		return 0, 0, errBroker
	}
	start, end, _ = p.w.changes.start(int(partition), -1)
	return start, end, nil
}

// NewReader implements deliver.Log.
func (l *changesLog) NewReader() deliver.Reader {
	l.p.w.mu.Lock()
	l.made++
	n := l.made
	l.p.w.mu.Unlock()
	l.p.w.readers.Add(1)
	return &reader{p: l.p, dice: l.p.w.dice(l.name+" reader", int64(n))}
}

// reader reads the changes log for lagging services. It gets stuck, brings few
// records at a time, and dies with some of them read: later reads then
// fail for a while.
type reader struct {
	p    *process
	dice *dice
	dead int // reads that will fail
}

var (
	errReader = errors.New("the reader has lost its connection")
	errRange  = errors.New("the offset is out of range")
)

// Read implements deliver.Reader.
func (r *reader) Read(ctx context.Context, partition int32, offset int64) ([]transport.Received, error) {
	p, w, t, part := r.p, r.p.w, r.p.w.changes, int(partition)
	if err := p.reach(ctx, r.dice.trip()); err != nil {
		return nil, err
	}
	if w.fault(r.dice, "reader slow", 10) {
		if err := sleep(ctx, r.dice.upTo(4*time.Second)); err != nil {
			return nil, err
		}
	}
	if r.dead > 0 {
		r.dead--
		return nil, errReader
	}
	if w.fault(r.dice, "read fails", 1) || t.missing() {
		return nil, errBroker
	}
	for {
		start, end, _ := t.start(part, offset)
		if offset > end {
			return nil, errRange // of a log that was there before
		}
		offset = start
		there, more := t.has(part, offset)
		if there {
			break
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	n := 1 + r.dice.n(w.setup.frame)
	if w.fault(r.dice, "reader dies", 10) {
		n, r.dead = 1, 1+r.dice.n(3)
	}
	entries, offset := t.from(part, offset, n)
	if len(entries) == 0 {
		return nil, errBroker // they are gone since
	}
	records := make([]transport.Received, len(entries))
	for i, e := range entries {
		records[i] = w.received(t, e, offset+int64(i), true)
	}
	if w.traced {
		w.note("%s reads %s/%d from %d to %d", p.name, t.name, part, offset, records[len(records)-1].Offset)
	}
	if w.rules.LeavesOut {
		// The last one alone, linked to any earlier one.
		records = records[len(records)-1:]
		records[0].Value = unlinked(records[0].Value)
	}
	return records, nil
}

// Close implements deliver.Reader.
func (r *reader) Close() { r.p.w.readers.Add(-1) }

// received is a record as a consumer gets it.
func (w *world) received(t *topic, e entry, offset int64, redelivered bool) transport.Received {
	value := e.Value
	if t == w.changes && w.rules.NoLinks {
		value = unlinked(value)
	}
	return transport.Received{Key: e.Key, Value: value, Headers: e.Headers, Offset: offset, Time: e.at, Redelivered: redelivered}
}

// unlinked is a frame that seems to be the first of its partition.
func unlinked(frame []byte) []byte {
	f, err := change.ParseFrame(frame)
	if err != nil {
		panic(err) // decide made it
	}
	var b change.FrameBuilder
	for i := range f.Slices {
		for c, err := range f.Slices[i].All("") {
			if err != nil {
				panic(err)
			}
			b.Add(f.Slices[i].Service, &c)
		}
	}
	return b.AppendTo(nil, change.Frame{From: f.From, To: f.To, Revision: f.Revision, Part: f.Part, Last: f.Last, Cut: f.Cut})
}

// missing is what an operator was told: that a service may lack changes of a
// partition, of versions from up to, not including, to.
type missing struct {
	service   string
	partition int64
	from, to  change.Version
}

// journal is where the product logs. It counts what happens to services and
// remembers which gaps were told of.
type journal struct {
	w     *world
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || j.w.traced
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{w: j.w, attrs: append(j.attrs[:len(j.attrs):len(j.attrs)], attrs...)}
}

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(string) slog.Handler { return j }

// Handle implements slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	event := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			event = a.Value.String()
		}
		return event == ""
	})
	switch event {
	case "delivery.caught_up":
		j.w.count("caught up")
	case "delivery.lagging":
		j.w.count("fell behind")
	case "delivery.lost":
		j.gone(r)
	}
	if j.w.traced {
		text := []string{r.Message}
		tell := func(a slog.Attr) bool { text = append(text, a.String()); return true }
		for _, a := range j.attrs {
			tell(a)
		}
		r.Attrs(tell)
		j.w.note("%v: %s", r.Level, strings.Join(text, " "))
	}
	return nil
}

func (j *journal) gone(r slog.Record) {
	j.w.count("gap")
	if r.Level < slog.LevelError {
		return // of state customers, which get the newest all the same
	}
	var m missing
	note := func(a slog.Attr) bool {
		switch a.Key {
		case "service":
			m.service = a.Value.String()
		case "partition":
			m.partition = a.Value.Int64()
		case "from":
			m.from = version(a.Value.String())
		case "to":
			m.to = version(a.Value.String())
		}
		return true
	}
	for _, a := range j.attrs {
		note(a)
	}
	r.Attrs(note)
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.w.gaps = append(j.w.gaps, m)
}

// version reads what change.Version.String says.
func version(text string) change.Version {
	var generation uint16
	var offset int64
	if _, err := fmt.Sscanf(text, "%d:%d", &generation, &offset); err != nil {
		panic(err)
	}
	if generation == 0 {
		return 0 // before the first
	}
	return change.NewVersion(generation, offset)
}

// told reports whether an operator knows that a service may lack a change.
func (w *world) told(service, entity string, v uint64) bool {
	part := int64(w.inbox.partitionOf([]byte(entity)))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.gaps {
		if m.service == service && m.partition == part && uint64(m.from) <= v && v < uint64(m.to) {
			return true
		}
	}
	return false
}
