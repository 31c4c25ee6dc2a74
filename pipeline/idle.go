package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sources"
)

// idle finds the remaining work of a run, and whether it is done.
type idle struct {
	roles   Roles
	store   assemble.Store
	active  *activation
	inbox   *inboxManager
	ingest  *ingestStage
	work    *workStage
	blocked func() (reason string, err error) // the error that blocks the process

	left atomic.Pointer[[]Wait] // see Pipeline.Waits
	done atomic.Bool            // nothing is left to do
}

// Wait is something that keeps a run from being idle.
type Wait struct {
	// For is the service that changes wait for, or source NAME, ingest, inbox.
	For string `json:"for"`
	// What describes the pending work.
	What string `json:"what"`
	// Because says why there is no progress. It is empty with progress.
	Because string `json:"because,omitempty"`
}

// String returns a sentence without its full stop.
func (w Wait) String() string {
	if w.Because != "" {
		return w.What + " (" + w.Because + ")"
	}
	return w.What
}

// WaitText joins the first of waits, those without progress before the others.
func WaitText(waits []Wait) string {
	const most = 3
	sorted := slices.Clone(waits)
	slices.SortStableFunc(sorted, func(a, b Wait) int {
		return strings.Compare(fmt.Sprint(a.Because == ""), fmt.Sprint(b.Because == ""))
	})
	var parts []string
	for _, w := range sorted[:min(most, len(sorted))] {
		parts = append(parts, w.String())
	}
	if more := len(sorted) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// lastWaits is Pipeline.Waits.
func (i *idle) lastWaits() []Wait {
	if w := i.left.Load(); w != nil {
		return *w
	}
	return nil
}

// waits returns the remaining work along the flow. An error of a server is a reason to wait.
func (i *idle) waits(ctx context.Context) []Wait {
	var all []Wait
	if i.roles.Ingest && i.ingest.running.Load() == nil {
		all = append(all, Wait{For: "ingest", What: "the sources are not being read"})
	}
	if i.roles.Ingest {
		for _, s := range i.ingest.sources() {
			if w, waiting := s.waits(ctx); waiting {
				all = append(all, w)
			}
		}
	}
	if i.roles.Work {
		if w, waiting := i.inboxWaits(ctx, true); waiting {
			all = append(all, w)
		}
	}
	if i.roles.Work && i.work.delivers != nil {
		stage := i.work.stage.Load()
		found := i.serviceWaits(ctx, i.work.conditions())
		if stage == nil || len(found) == 0 && !stage.Idle() {
			found = append(found, Wait{For: "deliver", What: "deliveries are under way"})
		}
		all = append(all, found...)
	}
	return all
}

// waits returns the remaining work of a source.
func (s *source) waits(ctx context.Context) (w Wait, waiting bool) {
	w = Wait{For: "source " + s.name, What: "source " + s.name + " is being read"}
	if input, err := s.failing(); err != nil {
		w.What, w.Because = fmt.Sprintf("source %s waits for %s", s.name, input), deliver.Cause(err)
		return w, true
	}
	w.Because = readBy(s.Source)
	if !s.stage.Idle() {
		return w, true
	}
	drained, err := s.Drained(ctx)
	if err != nil {
		w.Because = deliver.Cause(err)
		return w, true
	}
	if log, ok := s.Source.(sources.Log); ok && !drained {
		if n, err := log.Pending(ctx); err == nil {
			w.What = fmt.Sprintf("%s of source %s to be taken in", counted(n, "record waits", "records wait"), s.name)
		}
	}
	if t, ok := s.Source.(sources.Transactional); ok && !drained {
		if n, since := t.Held(); n > 0 {
			w.Because = fmt.Sprintf("%s behind the start of a transaction that a producer has left open since %s or earlier", counted(n, "record is", "records are"), since.UTC().Format(time.RFC3339))
		}
	}
	return w, !drained
}

// inboxWaits returns the undecided records. running says that this process decides them now.
func (i *idle) inboxWaits(ctx context.Context, running bool) (w Wait, waiting bool) {
	w = Wait{For: "inbox", What: "the inbox is being decided"}
	d := i.work.decider.Load()
	if _, err := i.blocked(); err != nil {
		w.Because = deliver.Cause(err)
	}
	lags, unavailable, err := i.inbox.lag(ctx)
	if err != nil {
		if w.Because == "" {
			w.Because = deliver.Cause(err)
		}
		return w, true
	}
	var lag int64
	for _, n := range lags {
		lag += n
	}
	if lag > 0 {
		w.What = counted(lag, "record of the inbox waits", "records of the inbox wait") + " to be decided"
		return w, true
	}
	if len(unavailable) > 0 {
		w.What = fmt.Sprintf("partitions %v of the inbox are unavailable, and what they hold is not known", unavailable)
		return w, true
	}
	return w, running && (d == nil || !d.Idle())
}

// serviceWaits returns the services with queued changes, the longest waiting first.
func (i *idle) serviceWaits(ctx context.Context, conditions map[string]deliver.Condition) []Wait {
	reached, err := operate.ReadProgress(ctx, i.store)
	if err != nil {
		return []Wait{{For: "store", What: "the store does not say what is delivered", Because: deliver.Cause(err)}}
	}
	var all []Wait
	for _, s := range i.active.plan().Services {
		if n := reached.Pending(s.Number); n > 0 {
			w := Wait{For: s.Name, What: "changes wait for " + s.Name}
			if c := conditions[s.Name]; c.State != deliver.StateRunning {
				w.Because = c.Cause
			}
			all = append(all, w)
		}
	}
	return all
}

const (
	// idlePeriod is how often idleness is checked.
	idlePeriod = 150 * time.Millisecond
	// lastLookTimeout bounds the check after the stages stopped.
	lastLookTimeout = 2 * time.Second
)

// until returns true when nothing is left to do, false when ctx ended. It checks the flow twice,
// since deliver may append to the inbox after the first check.
func (i *idle) until(ctx context.Context) bool {
	for quiet := 0; quiet < 2; {
		if !wait.Sleep(ctx, idlePeriod) {
			return false
		}
		waits := i.waits(ctx)
		if ctx.Err() != nil { // the result is useless after the end of ctx
			return false
		}
		i.left.Store(&waits)
		if quiet++; len(waits) > 0 {
			quiet = 0
		}
	}
	i.done.Store(true)
	return true
}

// begin notes that nothing of the run is done.
func (i *idle) begin() {
	i.left.Store(&[]Wait{{For: "start", What: "the run has only begun"}})
}

// lookAgain updates the remaining work after the stages stopped early: they may have finished
// some of it.
func (i *idle) lookAgain(limit context.Context) {
	if i.done.Load() {
		return
	}
	before := i.lastWaits()
	ctx, cancel := context.WithTimeout(limit, lastLookTimeout)
	defer cancel()
	why := map[string]string{}
	var left []Wait
	for _, w := range before {
		why[w.For] = w.Because
		if strings.HasPrefix(w.For, "source ") || w.For == "ingest" || w.For == "start" {
			left = append(left, w)
		}
	}
	if i.roles.Work {
		if w, waiting := i.inboxWaits(ctx, false); waiting {
			w.Because = why[w.For]
			left = append(left, w)
		}
		services := i.serviceWaits(ctx, nil)
		for i := range services {
			services[i].Because = why[services[i].For]
		}
		left = append(left, services...)
	}
	if ctx.Err() == nil || len(before) == 0 {
		i.left.Store(&left)
	}
}

// counted writes a number with the words for it.
func counted(n int64, one, many string) string {
	return fmt.Sprintf("%d %s", n, english.PluralWord(int(n), one, many))
}
