package operate

import (
	"context"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/store"
)

// StatusStore is the part of a store that StatusOfStore reads.
type StatusStore interface {
	ProgressStore
	store.Reports
	Pauses(ctx context.Context) ([]store.Pause, error)
	LetterLister
	CountLetters(ctx context.Context) (map[store.Stage]int64, error)
	KnownServices(ctx context.Context) (map[string]int32, error)
}

// StatusOfStore returns the status of these services from the store alone, when no process
// answers for the reason why. It includes the latest reports of processes. lives reports whether
// a process counts as alive.
func StatusOfStore(ctx context.Context, s StatusStore, services []string, why error, lives func(*Process) bool, now time.Time) (Status, error) {
	is := Status{Level: LevelDown, Unasked: why.Error(), Services: len(services)}
	var err error
	if is.Processes, err = Processes(ctx, s); err != nil {
		return is, err
	}
	var lastSeen time.Time
	alive := false
	said, paced := map[string]ServiceHealth{}, map[string]bool{}
	for i := range is.Processes {
		p := &is.Processes[i]
		if p.Seen.After(lastSeen) {
			lastSeen = p.Seen
		}
		if p.LastDecision.After(is.LastDecision) {
			is.LastDecision = p.LastDecision
		}
		lives := lives(p)
		if lives && (!alive || p.Level.Rank() > is.Level.Rank()) {
			is.Level = p.Level
		}
		alive = alive || lives
		if lives {
			for _, i := range p.Problems {
				if !slices.ContainsFunc(is.Items, func(o Item) bool { return o.What == i.What }) {
					is.Items = append(is.Items, i)
				}
			}
		}
		for _, name := range p.Paced {
			paced[name] = lives || paced[name]
		}
		for _, x := range p.Services {
			if lives || said[x.Service].Service == "" {
				said[x.Service] = x
			}
		}
	}
	if !alive {
		is.Since = lastSeen
	}
	pauses, err := Paused(ctx, s)
	if err != nil {
		return is, err
	}
	counts, err := s.CountLetters(ctx)
	if err != nil {
		return is, err
	}
	is.Letters = map[string]int64{}
	for stage, n := range counts {
		if n > 0 {
			is.Letters[string(stage)] = n
		}
	}
	items, err := LetterItems(ctx, s)
	if err != nil {
		return is, err
	}
	is.Items = append(is.Items, items...)
	if due, err := BackfillItem(ctx, s); err != nil {
		return is, err
	} else if due != nil {
		is.Items = append(is.Items, *due)
	}
	reached, err := ReadProgress(ctx, s)
	if err != nil {
		return is, err
	}
	numbers, err := s.KnownServices(ctx)
	if err != nil {
		return is, err
	}
	names := make(map[int32]string, len(services))
	for _, name := range services {
		if number := numbers[name]; number != 0 {
			names[number] = name
		}
	}
	is.Items = append(is.Items, reached.Repairs(names)...)
	for _, name := range services {
		b := Item{What: name}
		if number := numbers[name]; number != 0 {
			b.Queued = reached.Pending(number)
			b.AtMost = b.Queued > 0
		}
		pause, paused := pauses[name]
		x, unwell := said[name]
		if paused {
			x = serviceHealth(name, deliver.Condition{State: deliver.StatePaused, Since: pause.Since, Pause: deliver.PauseOf(pause)}, now)
		}
		switch {
		case paused || unwell && alive && !x.Waits():
			b.Level, b.Since, b.NextTry, b.Why, b.Do, b.Hold = x.Level, x.Since, x.NextTry, x.Error, x.Do, x.Hold
		case b.Queued == 0:
			continue
		case alive && paced[name]:
			b.Level, b.Why = LevelOK, waiting
		case alive:
			b.Level, b.Why = LevelOK, delivering
		default:
			b.Level, b.Since, b.Why = LevelDown, lastSeen, "no process delivers it"
			if unwell {
				b.Since, b.Why = x.Since, "no process delivers it; when one did: "+x.Error
			}
		}
		is.Items = append(is.Items, b)
	}
	is.judge()
	return is, nil
}
