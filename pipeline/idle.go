package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sources"
)

// Wait is something that keeps a run from being idle.
type Wait struct {
	// For is the service that changes wait for, or source NAME, ingest, inbox, imports.
	For string `json:"for"`
	// What describes the pending work; Changes is the number of pending changes of a service.
	What    string `json:"what"`
	Changes int64  `json:"changes,omitempty"`
	// Because says why there is no progress; empty when there is.
	Because string `json:"because,omitempty"`

	service int32
}

// String returns a sentence without its full stop.
func (w Wait) String() string {
	s := w.What
	if w.Changes > 0 {
		s = counted(w.Changes, "change waits", "changes wait") + " for " + w.For
	}
	if w.Because != "" {
		s += " (" + w.Because + ")"
	}
	return s
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
func (m *monitor) lastWaits() []Wait {
	if w := m.left.Load(); w != nil {
		return *w
	}
	return nil
}

// waits looks along the flow for what is left to do. An error of a server is a
// reason to wait.
func (m *monitor) waits(ctx context.Context) []Wait {
	if m.stages.importing(ctx) {
		return []Wait{{For: "imports", What: "an import is under way"}}
	}
	var all []Wait
	if m.opt.Roles.Ingest && m.stages.ingests.Load() == nil {
		all = append(all, Wait{For: "ingest", What: "the sources are not being read"})
	}
	for _, s := range m.stages.sources() {
		if w, waiting := s.waits(ctx); waiting {
			all = append(all, w)
		}
	}
	if m.opt.Roles.Decide {
		if w, waiting := m.inboxWaits(ctx, true); waiting {
			all = append(all, w)
		}
	}
	if m.opt.Roles.Deliver {
		stage := m.stages.deliver.Load()
		found := m.serviceWaits(ctx, m.stages.conditions())
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
	if err := s.failing(); err != nil {
		w.What, w.Because = fmt.Sprintf("source %s waits for %s", s.name, s.Source.(sources.Failing).WaitsFor()), deliver.Cause(err)
		return w, true
	}
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

// inboxWaits returns the undecided records; running: this process decides them now.
func (m *monitor) inboxWaits(ctx context.Context, running bool) (w Wait, waiting bool) {
	w = Wait{For: "inbox", What: "the inbox is being decided"}
	d := m.stages.decider.Load()
	if _, err := m.blocked(); err != nil {
		w.Because = deliver.Cause(err)
	}
	lags, unavailable, err := m.inboxLag(ctx)
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
	return w, running && (d == nil || !d.Idle() || !m.outboxesOwned(ctx, d))
}

// serviceWaits says which services have changes to be delivered, the one that has
// waited longest for its sink first.
func (m *monitor) serviceWaits(ctx context.Context, conditions map[string]deliver.Condition) []Wait {
	reached, err := operate.ReadProgress(ctx, m.store)
	if err != nil {
		return []Wait{{For: "store", What: "the store does not say what is delivered", Because: deliver.Cause(err)}}
	}
	var all []Wait
	for _, s := range m.active.plan().Services {
		if n := reached.Pending(s.Number); n > 0 {
			w := Wait{For: s.Name, What: "changes wait for " + s.Name, service: s.Number}
			if c := conditions[s.Name]; c.State != deliver.StateRunning {
				w.Because = c.Cause
			}
			all = append(all, w)
		}
	}
	return all
}

// conditions returns how each service's delivery is doing.
func (st *stageSet) conditions() map[string]deliver.Condition {
	if stage := st.deliver.Load(); stage != nil {
		return stage.Conditions()
	}
	return map[string]deliver.Condition{}
}

// count fills in how many changes wait for the services of waits, as the changes
// log has them. What cannot be read in time stays in words.
func (m *monitor) count(ctx context.Context, waits []Wait) {
	reached, err := operate.ReadProgress(ctx, m.store)
	if err != nil {
		return
	}
	_, ends, err := m.logs.Offsets(ctx, m.cfg.Kafka.Changes.Topic)
	if err != nil {
		return
	}
	found := map[int32]int64{}
	reader := changesLog{m.logs, m.cfg.Kafka.Changes.Topic}.NewReader()
	defer reader.Close()
	for partition, end := range ends {
		after := map[int32]change.Version{} // services that wait here
		from := end
		for _, w := range waits {
			if w.service != 0 && reached.Waiting(partition, w.service) > 0 {
				position := reached.Position(partition, w.service)
				after[w.service], from = position.Version, min(from, position.LogOffset)
			}
		}
		for len(after) > 0 && from < end {
			records, err := reader.Read(ctx, partition, from)
			if err != nil {
				return
			}
			for _, r := range records {
				for service, n := range waitingIn(r.Value, after) {
					found[service] += n
				}
				from = r.Offset + 1
			}
		}
	}
	for i := range waits {
		waits[i].Changes = found[waits[i].service]
	}
}

// waitingIn counts, by service, the changes of a frame at or above a position.
func waitingIn(record []byte, after map[int32]change.Version) map[int32]int64 {
	f, err := change.ParseFrameHeader(record)
	if err != nil {
		return nil
	}
	found := map[int32]int64{}
	for i := range f.Slices {
		s := &f.Slices[i]
		position, wanted := after[s.Service]
		switch {
		case !wanted || f.To <= position:
		case f.From >= position || f.Open() != nil:
			found[s.Service] += int64(s.Count)
		default:
			for c, err := range s.All("") {
				if err == nil && c.Position() >= position {
					found[s.Service]++
				}
			}
		}
	}
	return found
}

// Idleness is looked at often, and what waits is counted seldom: counting reads the
// changes log.
const (
	idlePeriod  = 150 * time.Millisecond
	countPeriod = 2 * time.Second
)

// untilIdle returns true when nothing is left to do, false when ctx ended. It
// looks along the flow twice: deliver may have put something into the inbox
// after it was looked at.
func (m *monitor) untilIdle(ctx context.Context) bool {
	last := time.Now().Add(-countPeriod / 2)
	for quiet := 0; quiet < 2; {
		if !wait.Sleep(ctx, idlePeriod) {
			return false
		}
		waits := m.waits(ctx)
		if len(waits) > 0 && time.Since(last) >= countPeriod {
			within, cancel := context.WithTimeout(ctx, countPeriod)
			m.count(within, waits)
			cancel()
			last = time.Now()
		} else {
			keepCounts(waits, m.lastWaits())
		}
		if ctx.Err() != nil { // what was found then is of no use
			return false
		}
		m.left.Store(&waits)
		if quiet++; len(waits) > 0 {
			quiet = 0
		}
	}
	m.idle.Store(true)
	return true
}

// keepCounts shows between two counts what the first of them gave.
func keepCounts(waits, before []Wait) {
	known := map[string]int64{}
	for _, w := range before {
		known[w.For] = w.Changes
	}
	for i := range waits {
		waits[i].Changes = known[waits[i].For]
	}
}

// begin notes that a run until idle has everything before it.
func (m *monitor) begin() {
	if m.opt.UntilIdle {
		m.left.Store(&[]Wait{{For: "start", What: "the run has only begun"}})
	}
}

// lookAgain finds what is left after the stages of a run until idle have ended before
// it was: what they finished on their way out is not.
func (m *monitor) lookAgain() {
	if !m.opt.UntilIdle || m.idle.Load() {
		return
	}
	before := m.lastWaits()
	ctx, cancel := context.WithTimeout(m.end.closing(), countPeriod)
	defer cancel()
	why := map[string]string{}
	var left []Wait
	for _, w := range before {
		why[w.For] = w.Because
		if strings.HasPrefix(w.For, "source ") || w.For == "ingest" || w.For == "imports" || w.For == "start" {
			left = append(left, w)
		}
	}
	if m.opt.Roles.Decide {
		if w, waiting := m.inboxWaits(ctx, false); waiting {
			w.Because = why[w.For]
			left = append(left, w)
		}
	}
	if m.opt.Roles.Deliver {
		services := m.serviceWaits(ctx, nil)
		m.count(ctx, services)
		for i := range services {
			services[i].Because = why[services[i].For]
		}
		left = append(left, services...)
	}
	if ctx.Err() == nil || len(before) == 0 {
		m.left.Store(&left)
	}
}

// counted writes a number with the words for it.
func counted(n int64, one, many string) string {
	return fmt.Sprintf("%d %s", n, english.PluralWord(int(n), one, many))
}
