package pipeline

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/operate"
)

// outages records since when the servers and sources of a process fail. It logs one line
// when an outage begins, one a minute, and one when it ends. Safe for concurrent use.
type outages struct {
	log *slog.Logger
	mu  sync.Mutex
	now map[string]*outage // guarded by mu; by name
}

// outage is one that has not ended.
type outage struct {
	since, logged time.Time
	next          time.Time // of the next check
	checks        int
	err           error
	do            string
}

const outageLogPeriod = time.Minute

// note records the result of one check. do is the remedy of its error.
func (o *outages) note(what string, err error, do string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.now[what]
	switch {
	case err == nil && is == nil:
	case err == nil:
		delete(o.now, what)
		o.log.Info("reachable again", "event", "dependency.reachable", "dependency", what, "outage", now.Sub(is.since).Round(time.Second))
	case is == nil:
		if o.now == nil {
			o.now = map[string]*outage{}
		}
		o.now[what] = &outage{since: now, logged: now, next: now.Add(watchPeriod), checks: 1, err: err, do: do}
		o.log.Warn("unreachable", "event", "dependency.unreachable", "dependency", what, "error", err)
	default:
		is.err, is.do, is.next = err, do, now.Add(watchPeriod)
		if is.checks++; now.Sub(is.logged) >= outageLogPeriod {
			is.logged = now
			o.log.Warn("still unreachable", "event", "dependency.still_unreachable", "dependency", what, "since", is.since, "failed_checks", is.checks, "error", err)
		}
	}
}

// end notes the end of the outages whose names have a prefix and are not among names.
func (o *outages) end(prefix string, names map[string]bool, now time.Time) {
	o.mu.Lock()
	var ended []string
	for what := range o.now {
		if strings.HasPrefix(what, prefix) && !names[what] {
			ended = append(ended, what)
		}
	}
	o.mu.Unlock()
	for _, what := range ended {
		o.note(what, nil, "", now)
	}
}

// items returns the outages as lines of a status, except an outage of the store, which blocks the
// whole process.
func (o *outages) items() (all []operate.Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(o.now)) {
		if is := o.now[what]; what != "store" {
			all = append(all, operate.Item{What: what, Level: operate.LevelDegraded, Since: is.since.UTC(), NextTry: is.next.UTC(), Why: is.err.Error(), Do: is.do})
		}
	}
	return all
}

// lasting joins the errors of the outages with a name prefix that have lasted at least least. It
// is nil without any.
func (o *outages) lasting(prefix string, least time.Duration, now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(o.now)) {
		if is := o.now[what]; strings.HasPrefix(what, prefix) && now.Sub(is.since) >= least {
			errs = append(errs, is.err)
		}
	}
	return errors.Join(errs...)
}

// times returns when the first outage with a name prefix began, and when it is checked next. Both
// are zero without one.
func (o *outages) times(prefix string) (since, next time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for what, is := range o.now {
		if strings.HasPrefix(what, prefix) && (since.IsZero() || is.since.Before(since)) {
			since, next = is.since, is.next
		}
	}
	return since, next
}
