package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// inboxManager knows the inbox: which generation the topic that is there now is, and
// when a new one has to begin.
type inboxManager struct {
	inboxOptions
	inbox atomic.Pointer[store.Inbox] // replaced when the topic is
	// stored is the newest inbox of the store, as of the monitor's last look: a process
	// that does not decide learns of a replaced inbox from it.
	stored atomic.Pointer[store.Inbox]
	// storeID is the topic id of the store's first inbox. It is unique to the store and outlives
	// the inbox's generations. It is not set before the inbox is open.
	storeID atomic.Pointer[string]
	// forgotten are the store's lost decisions, as of the last open: a store that is restored
	// once more has lost its own note of them. Only one goroutine opens an inbox at a time.
	forgotten []store.LostDecision
}

// inboxOptions are needed.
type inboxOptions struct {
	cfg    *config.Config // as the process was started with
	log    *slog.Logger
	store  assemble.Store
	logs   assemble.Logs
	active *activation
	sinks  func(*config.Config) *assemble.Sinks
	lost   *prometheus.CounterVec // by topic; times that undecided records were lost
}

// now returns the inbox that is open.
func (g *inboxManager) now() store.Inbox { return *g.inbox.Load() }

// ownID returns the unique id of the store, "" before the inbox is open.
func (g *inboxManager) ownID() string {
	if id := g.storeID.Load(); id != nil {
		return *id
	}
	return ""
}

// openTopics creates the inbox and the changes log and finds the inbox's generation; cut
// describes a known truncation, or is nil.
func (g *inboxManager) openTopics(ctx context.Context, cut *transport.TruncatedError) error {
	if err := g.logs.Ensure(ctx, assemble.Topics(g.active.config())); err != nil {
		return err
	}
	if l, ok := g.logs.(assemble.FileLogs); ok { // decisions write their frames into the file of the store
		if err := l.KeepChanges(ctx, g.cfg.Kafka.Changes.Topic); err != nil {
			return err
		}
	}
	return g.open(ctx, cut)
}

// open finds the generation of the inbox topic that is there now, which is a
// new one where the topic is another one, or holds less than was decided of it.
func (g *inboxManager) open(ctx context.Context, cut *transport.TruncatedError) error {
	k := g.cfg.Kafka
	id, err := g.logs.TopicID(ctx, k.Inbox.Topic)
	if err != nil {
		return err
	}
	// Before the store is read: it knows everything in the log by then.
	frames, unreadable, err := g.newestFrames(ctx)
	if err != nil {
		return err
	}
	restored, newest, err := g.detectRestore(ctx)
	if err != nil {
		return err
	}
	for _, f := range frames {
		newest = max(newest, f.To.Generation())
	}
	if _, err := g.store.KnownInbox(ctx, k.Inbox.Topic, id); errors.Is(err, store.ErrNotFound) {
		if err := g.logInboxReplaced(ctx); err != nil {
			return err
		}
		if len(unreadable) > 0 {
			return fmt.Errorf("topic %s: partitions %v cannot be read, and the newest generation may be there", k.Changes.Topic, unreadable)
		}
		newest = max(newest, g.targetsGeneration(ctx))
		restored = ""
	} else if err != nil {
		return err
	}
	found, err := g.store.ResolveInbox(ctx, k.Inbox.Topic, id, int32(k.Inbox.Partitions), newest+1)
	if err != nil {
		return err
	}
	if found, err = g.renewShorter(ctx, found, cut, newest+1); err != nil {
		return err
	}
	if found, err = g.renewDiverged(ctx, found, frames, unreadable, newest+1); err != nil {
		return err
	}
	if restored != "" {
		if found, err = g.store.RenewInbox(ctx, found, max(newest, g.targetsGeneration(ctx))+1, nil); err != nil {
			return err
		}
		g.log.Warn("the state file is a backup, or comes from elsewhere: a new generation of versions begins, and later events are read again where their source still has them",
			"event", "store.restored", "because", restored, "generation", found.Generation)
	}
	known, err := g.store.Inboxes(ctx)
	if err != nil {
		return err
	}
	g.storeID.Store(&known[0].TopicID)
	g.inbox.Store(&found)
	g.note()
	return nil
}

// detectRestore returns why the file of the logs is not as the last process left it ("" if it is)
// and the newest generation noted. See embedded.Logs.DetectRestore.
func (g *inboxManager) detectRestore(ctx context.Context) (why string, noted uint16, err error) {
	if l, ok := g.logs.(assemble.FileLogs); ok {
		return l.DetectRestore(ctx)
	}
	return "", 0, nil
}

// note leaves beside the file of the logs how far they are. Where that fails, on a full
// disk for instance, the previous note remains, and the next call tries again.
func (g *inboxManager) note() {
	if l, ok := g.logs.(assemble.FileLogs); ok && g.inbox.Load() != nil {
		if err := l.Note(g.now().Generation); err != nil {
			g.log.Warn("the progress of the logs was not noted; trying again", "event", "inbox.not_noted", "error", err)
		}
	}
}

// reopen finds the generation of an inbox that was replaced, for as long as
// that takes.
func (g *inboxManager) reopen(ctx context.Context, cut *transport.TruncatedError) {
	_, _ = wait.Retry(ctx, ctx, g.log, "open the inbox", func() error { return g.openTopics(ctx, cut) })
}

// renewDiverged opens a new generation, at least atLeast, where the changes log has
// decisions that a restored store lost, and some of them are of a later generation, or
// perhaps of another configuration than the active one. Decided again, the same version
// would have other content, or a later change a lower version, which targets that compare
// versions never apply. Under the same configuration the decisions are the same, and keep
// their versions.
func (g *inboxManager) renewDiverged(ctx context.Context, inbox store.Inbox, frames map[int32]*change.Frame, unreadable []int32, atLeast uint16) (store.Inbox, error) {
	// New decisions soon follow the lost ones in the log, so the store notes these.
	decided := g.forgotten
	known, err := g.store.Inboxes(ctx)
	if err != nil {
		return inbox, err
	}
	for n, f := range frames {
		if newest := known[len(known)-1].Generation; f.To.Generation() > newest {
			g.log.Warn("the store was restored to before a generation of versions: a new one begins", "event", "inbox.generation", "generation", f.To.Generation(), "known", newest)
			return g.store.RenewInbox(ctx, inbox, atLeast, nil)
		}
		decided = append(decided, store.LostDecision{Partition: store.Partition{Generation: f.To.Generation(), Number: n}, To: f.To.Offset(), Revision: f.Revision})
	}
	revisions, err := g.store.Revisions(ctx, 2)
	if err != nil || len(revisions) == 0 { // nothing was ever decided
		return inbox, err
	}
	active := revisions[0]
	noted, err := g.store.NoteLostDecisions(ctx, inbox.Generation, decided)
	if err != nil {
		return inbox, err
	}
	g.forgotten = noted
	same := bytes.Equal(active.Fingerprint, g.active.now.Load().identity)
	// The content of an unreadable partition is unknown. That is harmless under the
	// configuration of before, whose decisions are the same again. Numbers have a gap where
	// the store lost an activation.
	before := int64(0)
	if len(revisions) > 1 {
		before = revisions[1].Number
	}
	if len(unreadable) > 0 && (!same || active.Number > before+1) {
		return inbox, fmt.Errorf("topic %s: partitions %v cannot be read, and what was decided under another configuration may be there", g.cfg.Kafka.Changes.Topic, unreadable)
	}
	// Revisions only grow, and no two activations share one: decisions under the active one
	// are later than all others.
	other := func(f store.LostDecision) bool { return !same || f.Revision != active.Number }
	if !slices.ContainsFunc(g.forgotten, other) {
		return inbox, nil
	}
	g.log.Warn("the store was restored, and its lost decisions are of another configuration: a new generation of versions begins", "event", "inbox.generation",
		"decided_once", g.forgotten, "active", active.Number)
	return g.store.RenewInbox(ctx, inbox, atLeast, nil)
}

// targetsTimeout bounds reading the highest versions of all targets.
const targetsTimeout = 20 * time.Second

// targetsGeneration is the highest generation that tables of targets hold: a fresh
// store before tables of an earlier one would give out versions that they turn unreadable,
// without a word. Asked only where a generation begins.
func (g *inboxManager) targetsGeneration(ctx context.Context) (newest uint16) {
	ctx, cancel := context.WithTimeout(ctx, targetsTimeout)
	defer cancel()
	made := g.sinks(g.active.config())
	for _, s := range g.active.config().Services() {
		target, _, err := made.Target(ctx, s)
		if errors.Is(err, assemble.ErrUnreadable) {
			continue
		}
		var highest change.Version
		if err == nil {
			if versioned, ok := target.(sinks.Versioned); ok {
				highest, err = versioned.Highest(ctx)
			}
			err = errors.Join(err, target.Close())
		}
		if err != nil {
			// A table that is not there yet is the common reason.
			g.log.Info("the target was not asked for its highest version", "event", "inbox.target_unread", "service", s.Name, "because", err)
			continue
		}
		if found := highest.Generation(); found > newest {
			newest = found
			g.log.Warn("the target has versions already: the inbox takes a generation above them", "event", "inbox.generation", "service", s.Name, "highest", highest, "generation", int(newest)+1)
		}
	}
	return newest
}

// renewShorter opens a new generation, at least atLeast, of an inbox that was truncated
// below the decided offset: later events have the offsets of lost ones, below the
// watermark, or would get their versions. Where the truncation is unknown, the whole inbox
// is read again, and the fence drops events that were decided.
func (g *inboxManager) renewShorter(ctx context.Context, inbox store.Inbox, cut *transport.TruncatedError, atLeast uint16) (store.Inbox, error) {
	marks, err := g.store.Watermarks(ctx)
	if err != nil {
		return inbox, err
	}
	// After the watermarks, which are never ahead of the log then.
	starts, ends, err := g.logs.AvailableOffsets(ctx, inbox.Topic)
	if err != nil {
		return inbox, err
	}
	from := map[int32]int64{}
	for n, end := range ends {
		decided := marks[store.Partition{Generation: inbox.Generation, Number: n}]
		switch {
		case cut != nil && cut.TopicID == inbox.TopicID && cut.Partition == n && cut.Kept > 0 && cut.Kept < decided:
			from[n] = max(starts[n], cut.Kept)
		case decided > end:
			from[n] = starts[n]
		}
	}
	if len(from) == 0 {
		return inbox, nil
	}
	renewed, err := g.store.RenewInbox(ctx, inbox, atLeast, from)
	if err != nil {
		return inbox, err
	}
	g.lost.WithLabelValues(inbox.Topic).Inc()
	for _, n := range slices.Sorted(maps.Keys(from)) {
		g.log.Error("inbox was truncated below the decided offset; undecided records are lost. A new generation of versions begins, and the inbox is read again", "event", "inbox.truncated",
			"topic", inbox.Topic, "partition", n, "decided_to", marks[store.Partition{Generation: inbox.Generation, Number: n}], "end", ends[n], "reading_from", from[n], "generation", renewed.Generation)
	}
	return renewed, nil
}

// logInboxReplaced is called when the store does not know the inbox topic. If the store has
// decided records of another topic, that one was replaced.
func (g *inboxManager) logInboxReplaced(ctx context.Context) error {
	marks, err := g.store.Watermarks(ctx)
	if err != nil || len(marks) == 0 {
		return err
	}
	g.lost.WithLabelValues(g.cfg.Kafka.Inbox.Topic).Inc()
	g.log.Error("the inbox topic was replaced; undecided records of the old one are lost", "event", "inbox.replaced", "topic", g.cfg.Kafka.Inbox.Topic)
	return nil
}

// identity names the inbox that events go to, uniquely among all pipelines: generations start at
// 1 in every store, and a topic keeps its id when it loses records.
func (g *inboxManager) identity() string {
	inbox := g.now()
	if stored := g.stored.Load(); stored != nil && stored.Generation > inbox.Generation {
		inbox = *stored
	}
	return inbox.TopicID + "." + strconv.Itoa(int(inbox.Generation))
}

// newestFrames returns the header of the newest frame of each partition of the changes
// log, and the partitions that cannot be read now. A restored or lost store must not assign
// these versions again: customers have seen them.
func (g *inboxManager) newestFrames(ctx context.Context) (frames map[int32]*change.Frame, unreadable []int32, err error) {
	last, unreadable, err := g.logs.ReadLast(ctx, g.cfg.Kafka.Changes.Topic)
	if err != nil {
		return nil, nil, err
	}
	frames = map[int32]*change.Frame{}
	for _, r := range last {
		if f, err := change.ParseFrameHeader(r.Value); err == nil {
			frames[r.Partition] = f
			g.active.know(f.Revision)
		}
	}
	return frames, unreadable, nil
}
