package pipeline

import (
	"context"
	"errors"
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
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// inboxManager knows the inbox: which generation the topic that is there now is, and
// when a new one has to begin.
type inboxManager struct {
	cfg    *config.Config // as the process was started with
	log    *slog.Logger
	store  assemble.Store
	logs   assemble.Logs
	active *activation
	sinks  func(*config.Config) *assemble.Sinks
	lost   *prometheus.CounterVec // by topic; times that undecided records were lost

	inbox atomic.Pointer[store.Inbox] // replaced when the topic is
	// stored is the newest inbox of the store, as of the monitor's last look: a process
	// that does not decide learns of a replaced inbox from it.
	stored atomic.Pointer[store.Inbox]
	// storeID is the topic id of the store's first inbox. It is unique to the store and outlives
	// the inbox's generations. It is not set before the inbox is open.
	storeID atomic.Pointer[string]
	journal *journal // nil where the file of the logs has a note
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

// openTopics creates the inbox and the journal and finds the inbox's generation; cut
// describes a known truncation, or is nil.
func (g *inboxManager) openTopics(ctx context.Context, cut *transport.TruncatedError) error {
	if err := g.logs.Ensure(ctx, assemble.Topics(g.active.config())); err != nil {
		return err
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
	restored, least, err := g.detectRestore(ctx)
	if err != nil {
		return err
	}
	if _, err := g.store.KnownInbox(ctx, k.Inbox.Topic, id); errors.Is(err, store.ErrNotFound) {
		if err := g.logInboxReplaced(ctx); err != nil {
			return err
		}
		least, restored = max(least, g.targetsGeneration(ctx)), ""
	} else if err != nil {
		return err
	} else if restored != "" {
		least = max(least, g.targetsGeneration(ctx))
	}
	found, err := g.store.ResolveInbox(ctx, k.Inbox.Topic, id, int32(k.Inbox.Partitions), g.journal.noteGeneration(ctx, least, true))
	if err != nil {
		return err
	}
	from, err := g.truncated(ctx, found, cut)
	if err != nil {
		return err
	}
	renewed, err := g.store.RenewInbox(ctx, found, from, g.journal.noteGeneration(ctx, least, len(from) > 0 || restored != ""))
	if err != nil {
		return err
	}
	switch before := g.inbox.Load(); {
	case renewed == found && (before == nil || *before == found):
	case restored != "":
		g.log.Warn("the state file is a backup, or comes from elsewhere: a new generation of versions begins, and later events are read again where their source still has them",
			"event", "store.restored", "because", restored, "generation", renewed.Generation)
	default:
		g.log.Warn("a new generation of versions begins: the store does not know all of the journal, or the inbox lost records", "event", "inbox.generation", "generation", renewed.Generation)
	}
	found = renewed
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

// takenOver is decide.Options.TakenOver. The journal is read after the takeover: later
// activations and generations fence this owner.
func (g *inboxManager) takenOver(ctx context.Context, token store.Token, taken []store.TakenOver) error {
	if g.journal == nil {
		return nil
	}
	if same, err := g.journal.matches(ctx, g.store.History); err != nil {
		return err
	} else if !same {
		return decide.ErrInboxReplaced
	}
	taken = slices.DeleteFunc(slices.Clone(taken), func(t store.TakenOver) bool { return !t.Doubt })
	if len(taken) == 0 {
		return nil
	}
	// After the takeover: all earlier decisions are below these ends.
	_, ends, err := g.logs.AvailableOffsets(ctx, g.now().Topic)
	if err != nil {
		return err
	}
	doubts := map[store.Partition]int64{}
	for _, t := range taken {
		if end, ok := ends[t.Partition.Number]; ok {
			doubts[t.Partition] = end
		}
	}
	return g.store.EndDoubt(ctx, token, doubts)
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

// truncated returns where a new generation has to begin by partition, of an inbox that was truncated
// below the decided offset: later events have the offsets of lost ones, below the
// watermark, or would get their versions. Where the truncation is unknown, the whole inbox
// is read again, and the fence drops events that were decided.
func (g *inboxManager) truncated(ctx context.Context, inbox store.Inbox, cut *transport.TruncatedError) (map[int32]int64, error) {
	marks, err := g.store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	// After the watermarks, which are never ahead of the log then.
	starts, ends, err := g.logs.AvailableOffsets(ctx, inbox.Topic)
	if err != nil {
		return nil, err
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
	if len(from) > 0 {
		g.lost.WithLabelValues(inbox.Topic).Inc()
	}
	for _, n := range slices.Sorted(maps.Keys(from)) {
		g.log.Error("inbox was truncated below the decided offset; undecided records are lost. A new generation of versions begins, and the inbox is read again", "event", "inbox.truncated",
			"topic", inbox.Topic, "partition", n, "decided_to", marks[store.Partition{Generation: inbox.Generation, Number: n}], "end", ends[n], "reading_from", from[n])
	}
	return from, nil
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
