package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"golang.org/x/sync/semaphore"
)

// SequencedAppender is an inbox of several partitions, each of which may be unavailable while
// others work; see transport.Producer.AppendAsync.
type SequencedAppender interface {
	transport.Appender
	AppendAsync(ctx context.Context, sequence *transport.Sequence, records []transport.Record, done func(error))
}

// Aside holds the events that the stages of a process have set aside for stuck partitions of
// the inbox, within a bound. It is safe for concurrent use.
type Aside struct {
	room *semaphore.Weighted

	mu    sync.Mutex
	stuck map[int32]int // frames by partition of the inbox
}

// NewAside returns an Aside for at most that many bytes.
func NewAside(bytes int64) *Aside {
	return &Aside{room: semaphore.NewWeighted(bytes), stuck: map[int32]int{}}
}

// stuckSince is how long partitions of the inbox may take for an append, since others last
// answered, before they count as stuck: longer than a broker that is busy, and shorter than an
// election.
const stuckSince = time.Second

// isStuck reports whether all groups wait for partitions for which something is set aside.
func (a *Aside) isStuck(groups []*group) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range groups {
		if a.stuck[g.partition] == 0 {
			return false
		}
	}
	return true
}

func (a *Aside) add(groups []*group, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range groups {
		if a.stuck[g.partition] += n; a.stuck[g.partition] == 0 {
			delete(a.stuck, g.partition)
		}
	}
}

// lane is the frames of one assignment of a source's partition, in their order. Its
// fields are guarded by the stage's mutex.
type lane struct {
	assignment uint64
	frames     int // in work
	sequence   *transport.Sequence
	refused    bool
	resumeAt   int64 // of refused: the next frame that is appended begins there or before, and was handed out before
}

// errBehind refuses a frame that was handed out behind one that failed.
var errBehind = errors.New("events before these were not appended")

// enter lets a frame into the lane of its partition.
func (s *Stage) enter(f *transport.Frame) (*lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[f.Partition]
	if l == nil || l.assignment != f.Assignment {
		l = &lane{assignment: f.Assignment, sequence: new(transport.Sequence)}
		s.lanes[f.Partition] = l
	}
	if l.refused {
		// Frames of one transaction may share an offset: those behind the refused one are new.
		if f.First() > l.resumeAt || !f.Records[0].Redelivered || l.frames > 0 {
			return nil, errBehind
		}
		l.refused, l.sequence = false, new(transport.Sequence)
	}
	l.frames++
	return l, nil
}

// leave takes a frame off its lane, from this offset on if it failed.
func (s *Stage) leave(l *lane, err error, from int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.frames--
	if err != nil && (!l.refused || from < l.resumeAt) {
		l.refused, l.resumeAt = true, from
	}
}

// renew replaces a lane's sequence after a failure, and reports whether it may: not while
// other frames are in work, since theirs would be appended behind a gap.
func (s *Stage) renew(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.frames > 1 || l.refused {
		return false
	}
	l.sequence = new(transport.Sequence)
	return true
}

// firstOf is the offset of the first event of a frame that is left.
func firstOf(f *transport.Frame, left []*group) int64 {
	if len(left) == 0 {
		return f.First()
	}
	first := f.Last()
	for _, g := range left {
		for _, x := range g.events {
			first = min(first, f.Records[x.at].Offset)
		}
	}
	return first
}

// group is the records of a frame for one partition of the inbox.
type group struct {
	partition int32
	records   []transport.Record
	events    []*extracted
	size      int64
}

// groups splits records by partition; events[i] is the event of records[i].
func (s *Stage) groups(records []transport.Record, events []*extracted) (all []*group) {
	by := map[int32]*group{}
	for i, r := range records {
		p := transport.PartitionOf(r.Key, s.opt.Partitions)
		g := by[p]
		if g == nil {
			g = &group{partition: p}
			by[p] = g
			all = append(all, g)
		}
		r.Pinned, r.Partition = true, p
		g.records = append(g.records, r)
		g.events = append(g.events, events[i])
		g.size += int64(len(r.Key)+len(r.Value)) + setAsideOverhead
	}
	return all
}

// setAsideOverhead is the memory of a record that is set aside, beside its bytes.
const setAsideOverhead = 1 << 10

// appendGroups appends the records of a frame, and retries failed groups as long as no other
// frame depends on them. It calls done for each appended group, with whether it had been set
// aside. With an error it returns the groups that remain.
func (s *Stage) appendGroups(work, stop context.Context, f *transport.Frame, l *lane, groups []*group, done func(groups []*group, aside bool)) (left []*group, err error) {
	aside := false
	_, err = wait.Retry(context.Background(), stop, s.log, "append to the inbox", func() error {
		failed, err := s.appendOnce(work, stop, f, l, groups, &aside, done)
		groups = failed
		if err != nil && (aside || !s.renew(l)) {
			return nil // it is handed out again, in its order
		}
		return err
	})
	if err == nil && len(groups) > 0 {
		err = errBehind
	}
	return groups, err
}

// appendOnce appends groups at the same time and returns those that were not appended.
func (s *Stage) appendOnce(work, stop context.Context, f *transport.Frame, l *lane, groups []*group, aside *bool, done func([]*group, bool)) (left []*group, err error) {
	if stop.Err() != nil {
		return groups, context.Cause(stop)
	}
	ctx, cancel := wait.WithGrace(work, stop, stopGrace)
	defer cancel()
	type result struct {
		at  int
		err error
	}
	results := make(chan result, len(groups))
	for i, g := range groups {
		s.async.AppendAsync(ctx, l.sequence, g.records, func(err error) { results <- result{i, err} })
	}
	waiting := make(map[int]*group, len(groups))
	for i, g := range groups {
		waiting[i] = g
	}
	slow := time.NewTimer(stuckSince)
	defer slow.Stop()
	isSlow := false
	var appended, failed, set []*group
	defer func() {
		if set != nil {
			s.opt.Aside.add(set, -1)
		}
	}()
	for len(waiting) > 0 {
		if set == nil && err == nil && (isSlow || s.opt.Aside.isStuck(slices.Collect(maps.Values(waiting)))) {
			done(appended, false)
			appended = nil
			if rest := slices.Collect(maps.Values(waiting)); s.setAside(f, rest) {
				set, *aside = rest, true
				defer s.opt.Aside.room.Release(sizeOf(rest))
			}
		}
		select {
		case r := <-results:
			g := waiting[r.at]
			delete(waiting, r.at)
			isSlow = false
			slow.Reset(stuckSince)
			if r.err != nil {
				failed, err = append(failed, g), r.err
			} else {
				appended = append(appended, g)
			}
		case <-slow.C:
			isSlow = true
			slow.Reset(stuckSince) // there may be room by then
		case <-ctx.Done():
			done(appended, set != nil)
			return append(failed, slices.Collect(maps.Values(waiting))...), fmt.Errorf("append: outcome unknown: %w", ctx.Err())
		}
	}
	done(appended, set != nil)
	return failed, err
}

// setAside lets later frames pass the waiting records of f, if there is room.
func (s *Stage) setAside(f *transport.Frame, waiting []*group) bool {
	size := sizeOf(waiting)
	if !s.opt.Aside.room.TryAcquire(size) {
		return false
	}
	left := map[int]bool{}
	for _, g := range waiting {
		for _, x := range g.events {
			left[x.at] = true
		}
	}
	s.opt.Aside.add(waiting, 1)
	if f.SetAside(slices.Sorted(maps.Keys(left))) {
		return true
	}
	s.opt.Aside.add(waiting, -1)
	s.opt.Aside.room.Release(size)
	return false
}

func sizeOf(groups []*group) (n int64) {
	for _, g := range groups {
		n += g.size
	}
	return n
}
