package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/operate"
)

// MarkKind is the kind of an event in the life of a deployment.
type MarkKind string

// The kinds of marks.
const (
	Started   MarkKind = "start"
	Stopped   MarkKind = "stop"
	Reloaded  MarkKind = "reload"
	Failed    MarkKind = "outage"
	Recovered MarkKind = "recovery"
)

// MaxMarks bounds the marks of an hour.
const MaxMarks = 200

// Mark is an event that explains a plot.
type Mark struct {
	At   time.Time
	Kind MarkKind
	// Of is a process, or the name of a failing service, source or server.
	Of, Text string
}

// Marks returns the marks since a time, the oldest first.
func (r *Recorder) Marks(since time.Time) (all []Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hours := range []map[int64]*chunk{r.saved, r.saving, r.unsaved} {
		for _, c := range hours {
			for _, m := range c.marks {
				if !m.At.Before(since) {
					all = append(all, m)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Mark) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Of, b.Of)) })
	return all
}

// changes returns marks for the differences between two states of this process. A process without
// a name has no marks.
func changes(before, now operate.Process) (marks []Mark) {
	if now.Name == "" {
		return nil
	}
	mark := func(kind MarkKind, of, text string) {
		marks = append(marks, Mark{now.Seen.Truncate(time.Second), kind, of, text})
	}
	switch {
	case before.Name == "":
		mark(Started, now.Name, "version "+now.Version)
	case now.Revision != before.Revision && before.Revision != 0:
		mark(Reloaded, now.Name, fmt.Sprintf("revision %d", now.Revision))
	}
	was, is := outages(before), outages(now)
	for of, why := range is {
		if _, known := was[of]; !known {
			mark(Failed, of, why)
		}
	}
	for of := range was {
		if _, still := is[of]; !still {
			mark(Recovered, of, "")
		}
	}
	if now.Stopped {
		mark(Stopped, now.Name, "")
	}
	return marks
}

// mark adds marks to the present hour.
func (r *Recorder) mark(now time.Time, marks []Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hour := now.Unix() / 3600
	if r.unsaved[hour] == nil {
		r.unsaved[hour] = newChunk()
	}
	r.unsaved[hour].mark(marks...)
}

// outages returns the failures that a process reports, with the reasons. A process that
// starts is no outage.
func outages(p operate.Process) map[string]string {
	all := map[string]string{}
	if p.Level == operate.LevelDown && p.Reason != "starting" {
		all[p.Name] = p.Error
	}
	for _, i := range p.Problems {
		if i.Level.Rank() > 0 {
			all[i.What] = i.Why
		}
	}
	for _, s := range p.Services {
		if s.Level == operate.LevelDown {
			all[s.Service] = s.Error
		}
	}
	return all
}
