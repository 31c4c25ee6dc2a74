package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// A log customer of a schedule that resumes knows no keys. Like a Kafka topic it can
// list its records, and end another process's writes: each partition
// of the changes log is written under an epoch, and only the newest one is taken.

// stamp is the origin of a record that took effect.
type stamp struct {
	partition int32
	position  change.Version
	key       string
}

// writing is one partition of the changes log at one process's sink.
type writing struct {
	claim sinks.Takeover
	epoch int             // 0: what is there is not known
	left  map[string]bool // what was found there, by key
	end   int             // where the log ended when it was looked through, or behind the last own record
	tried change.Version  // the highest position that was sent, or found
	reach change.Version  // the highest of which deliver heard what became of it
	above change.Version
}

// resumer is a sink that looks for its predecessor's records in its target.
type resumer struct {
	*sink
	parts map[int32]*writing
	found uint64
}

var _ sinks.Recoverer = (*resumer)(nil)

// resumes reports whether a service's sink looks for its predecessor's records.
func (w *world) resumes(service string) bool { return w.setup.resumes && service == logService }

// unmarked reports whether a backup lacks a mark of a partition, as one does that is
// older than the first write there: then a successor looks at nothing.
func (s *Snapshot) unmarked(partitions int) bool {
	number := s.state.services[logService]
	for p := range int32(partitions) {
		i := slices.IndexFunc(s.state.progress[p].positions, func(at store.ServicePosition) bool { return at.Service == number })
		if i < 0 || s.state.progress[p].positions[i].Mark == "" {
			return true
		}
	}
	return false
}

// newSink connects a process to a customer.
func (p *process) newSink(service, dice string) sinks.Sink {
	s := &sink{p: p, c: p.w.customer(service), dice: p.w.dice(dice)}
	if p.w.resumes(service) {
		return &resumer{sink: s, parts: map[int32]*writing{}}
	}
	return s
}

// Resume implements sinks.Recoverer.
func (r *resumer) Resume(ctx context.Context, claims []sinks.Takeover) error {
	if err := r.p.reach(ctx, r.dice.trip()); err != nil {
		return err
	}
	if r.p.w.fault(r.dice, "resume fails", 1) {
		return r.failure(sinks.Pause, false)
	}
	answer := !r.p.w.fault(r.dice, "resume done, answer lost", 1)
	r.c.mu.Lock()
	for _, claim := range claims {
		if !r.p.w.rules.NoFence || r.c.epochs[claim.Partition] == 0 {
			r.c.epochs[claim.Partition]++
		}
		if answer {
			r.parts[claim.Partition] = r.look(claim)
		}
	}
	r.c.mu.Unlock()
	r.p.w.point(r.p)
	if err := sleep(ctx, r.dice.trip()); err != nil {
		r.doubt(claims)
		return err
	}
	r.p.thaw()
	if !answer {
		return r.failure(sinks.Retry, false)
	}
	return nil
}

// look finds the records of a claim in its target. The caller holds the customer's
// lock.
func (r *resumer) look(claim sinks.Takeover) *writing {
	from, end := len(r.c.stamps), len(r.c.stamps)
	if n, err := strconv.Atoi(claim.Bookmark); err == nil && !r.p.w.rules.ForgetsMarks {
		from = n
	}
	if claim.Bookmark == "" {
		claim.Bookmark = strconv.Itoa(end)
	}
	w := &writing{claim: claim, epoch: r.c.epochs[claim.Partition], left: map[string]bool{}, end: end}
	for _, s := range r.c.stamps[from:] {
		if s.partition == claim.Partition && s.position >= claim.Below {
			w.left[s.key] = true
			w.tried = max(w.tried, s.position)
		}
	}
	return w
}

// doubt marks the targets of partitions as unknown.
func (r *resumer) doubt(claims []sinks.Takeover) {
	for _, c := range claims {
		if w := r.parts[c.Partition]; w != nil {
			w.epoch = 0
		}
	}
}

var errFenced = errors.New("somebody else writes this partition now")

// Write leaves out changes that are there. After an answer that leaves something in doubt it
// looks again before anything else.
func (r *resumer) Write(ctx context.Context, changes []change.Change) error {
	var again, all []sinks.Takeover
	for _, c := range changes {
		w := r.parts[c.Partition]
		if w == nil {
			return fmt.Errorf("partition %d was not resumed", c.Partition)
		}
		if w.epoch == 0 {
			again = append(again, w.claim)
		}
		all = append(all, w.claim)
	}
	if len(again) > 0 {
		if err := r.Resume(ctx, again); err != nil {
			return err
		}
	}
	// It looks how its target is, also if there is nothing to send then.
	if err := sleep(ctx, r.dice.trip()); err != nil {
		return err
	}
	r.p.w.point(r.p)
	todo := make([]change.Change, 0, len(changes))
	at := make([]int, 0, len(changes)) // of todo in changes
	var under []func() bool
	for i := range changes {
		c := &changes[i]
		w := r.parts[c.Partition]
		if w.left[c.Key] {
			r.found++
			r.p.w.count("found")
			continue
		}
		w.tried = max(w.tried, c.Position())
		s, epoch := stamp{c.Partition, c.Position(), c.Key}, w.epoch
		todo, at = append(todo, *c), append(at, i)
		under = append(under, func() bool { // the customer's lock is held
			if r.c.epochs[s.partition] != epoch {
				return false
			}
			r.c.stamps = append(r.c.stamps, s)
			return true
		})
	}
	if len(todo) > 0 {
		err := r.write(ctx, todo, under)
		var each *sinks.BatchError
		var one *sinks.Error
		switch {
		case errors.As(err, &each):
			failed := map[int]error{}
			for i, err := range each.Failed {
				failed[at[i]] = err
			}
			err = &sinks.BatchError{Failed: failed}
		case err != nil && (!errors.As(err, &one) || one.Ambiguous):
			r.doubt(all)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range changes {
		w := r.parts[c.Partition]
		w.reach = max(w.reach, c.Position())
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	for n, w := range r.parts {
		for i, s := range r.c.stamps {
			if s.partition == n && r.c.epochs[n] == w.epoch {
				w.end = max(w.end, i+1)
			}
		}
		if w.epoch != 0 && w.tried <= w.reach {
			w.claim.Bookmark, w.above = strconv.Itoa(w.end), w.tried
		}
	}
	return nil
}

// Bookmark implements sinks.Recoverer.
func (r *resumer) Bookmark(partition int32) (string, change.Version) {
	w := r.parts[partition]
	if w == nil {
		return "", 0
	}
	return w.claim.Bookmark, w.above
}

// Found implements sinks.Recoverer.
func (r *resumer) Found() uint64 { return r.found }
