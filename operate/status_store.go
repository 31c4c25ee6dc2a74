package operate

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/store"
)

// StatusStore is what StatusOfStore reads of a store.
type StatusStore interface {
	ProgressStore
	store.Reports
	CountLetters(ctx context.Context) (map[store.Stage]int64, error)
	KnownServices(ctx context.Context) (map[string]int32, error)
}

// StatusOfStore is what the store knows of these services, where no process could be
// asked and why not. Processes that told of themselves of late say in it how they are;
// lives reports whether one may be taken for alive.
func StatusOfStore(ctx context.Context, s StatusStore, services []string, why error, lives func(*Process) bool, now time.Time) (Status, error) {
	is := Status{Level: LevelDown, Unasked: why.Error(), Behind: []Behind{}, Letters: map[string]int64{}, Services: len(services)}
	var err error
	if is.Processes, err = Processes(ctx, s); err != nil {
		return is, err
	}
	var lastSeen time.Time
	alive := false
	said := map[string]ServiceHealth{}
	for i := range is.Processes {
		p := &is.Processes[i]
		lastSeen, is.LastDecision = latest(lastSeen, p.Seen), latest(is.LastDecision, p.LastDecision)
		lives := lives(p)
		if lives && (!alive || p.Level.Rank() > is.Level.Rank()) {
			is.Level = p.Level
		}
		alive = alive || lives
		for _, x := range p.Services {
			if lives || said[x.Service].Service == "" {
				said[x.Service] = x
			}
		}
	}
	suspended, err := Suspended(ctx, s)
	if err != nil {
		return is, err
	}
	counts, err := s.CountLetters(ctx)
	if err != nil {
		return is, err
	}
	for stage, n := range counts {
		if n > 0 {
			is.Letters[string(stage)] = n
		}
	}
	reached, err := ReadReached(ctx, s)
	if err != nil {
		return is, err
	}
	numbers, err := s.KnownServices(ctx)
	if err != nil {
		return is, err
	}
	for _, name := range services {
		b := Behind{What: name}
		if number := numbers[name]; number != 0 {
			b.Waiting = reached.Pending(number)
		}
		wish, paused := suspended[name]
		x, unwell := said[name]
		if paused {
			x = serviceHealth(name, deliver.Condition{State: deliver.StateSuspended, Since: wish.Since, Suspended: &wish}, now)
		}
		switch {
		case paused || unwell && alive && x.State != deliver.StateSuspended:
			b.Level, b.Since, b.Why, b.Do = x.Level, x.Since, x.Error, x.Do
		case b.Waiting == 0:
			continue
		case alive:
			b.Level, b.Why = LevelOK, "changes are being delivered"
		default:
			b.Level, b.Since, b.Why = LevelDown, lastSeen, "no process delivers it"
			if unwell {
				b.Since, b.Why = x.Since, "no process delivers it; when one did: "+x.Error
			}
		}
		is.Behind = append(is.Behind, b)
	}
	is.judge()
	return is, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
