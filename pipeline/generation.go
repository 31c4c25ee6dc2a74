package pipeline

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// openInbox finds the generation of the inbox topic that is there now, which is a
// new one where the topic is another one, or holds less than was decided of it.
func (p *Pipeline) openInbox(ctx context.Context, cut *transport.TruncatedError) error {
	k := p.cfg.Kafka
	id, err := p.logs.TopicID(ctx, k.Inbox.Topic)
	if err != nil {
		return err
	}
	var newest uint16
	if _, err := p.store.KnownInbox(ctx, k.Inbox.Topic, id); errors.Is(err, store.ErrNotFound) {
		if err := p.sayReplaced(ctx); err != nil {
			return err
		}
		if newest, err = p.newestGeneration(ctx); err != nil {
			return err
		}
		newest = max(newest, p.targetsGeneration(ctx))
	} else if err != nil {
		return err
	}
	found, err := p.store.ResolveInbox(ctx, k.Inbox.Topic, id, int32(k.Inbox.Partitions), newest+1)
	if err != nil {
		return err
	}
	if found, err = p.renewShorter(ctx, found, cut); err != nil {
		return err
	}
	if found, err = p.renewForked(ctx, found); err != nil {
		return err
	}
	p.inbox.Store(&found)
	return nil
}

// renewForked opens a new generation where the changes log has what a store decided
// that was put back since, and a part of it perhaps under another configuration than
// what is decided now. The same version would have other content then, which targets
// that compare versions ignore for ever. Decided again under the same configuration
// it is the same, and keeps its versions.
func (p *Pipeline) renewForked(ctx context.Context, inbox store.Inbox) (store.Inbox, error) {
	last, err := p.logs.ReadLast(ctx, p.cfg.Kafka.Changes.Topic)
	if err != nil {
		return inbox, err
	}
	active, err := p.store.Active(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return inbox, nil // nothing was ever decided
	} else if err != nil {
		return inbox, err
	}
	// After the log: what it had then was committed before.
	marks, err := p.store.Watermarks(ctx)
	if err != nil {
		return inbox, err
	}
	same := bytes.Equal(active.Fingerprint, p.identity()) && !p.active.wentBack.Load()
	forked := false
	for _, r := range last {
		f, err := change.ParseFrameHeader(r.Value)
		if err != nil || f.To.Generation() != inbox.Generation {
			continue
		}
		decided := marks[store.Partition{Generation: inbox.Generation, Number: r.Partition}]
		// Revisions only grow: one that the store has still holds for all before it.
		if f.To.Offset() > decided && !(same && f.Revision == active.Number) {
			forked = true
			p.log.Warn("the store went back, and what it forgot was decided under another configuration: a new generation of versions begins",
				"partition", r.Partition, "decided_once_to", f.To, "watermark", decided, "revision", f.Revision, "active", active.Number)
		}
	}
	p.active.wentBack.Store(false)
	if !forked {
		return inbox, nil
	}
	return p.store.RenewInbox(ctx, inbox, 0, nil)
}

// identity is that of the configuration of this process.
func (p *Pipeline) identity() []byte {
	if now := p.active.now.Load(); now != nil {
		return now.identity
	}
	return p.cfg.Identity()
}

// targetsTimeout bounds what the targets are asked; those that are away are not waited for.
const targetsTimeout = 20 * time.Second

// targetsGeneration is the highest generation that tables of targets hold: a fresh
// store before tables of an earlier one would give out versions that they turn away,
// without a word. Asked only where a generation begins.
func (p *Pipeline) targetsGeneration(ctx context.Context) (newest uint16) {
	ctx, cancel := context.WithTimeout(ctx, targetsTimeout)
	defer cancel()
	made := p.sinks(p.Config())
	for _, s := range p.active.config().Services() {
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
			p.log.Info("the target was not asked for its highest version", "service", s.Name, "because", err)
			continue
		}
		if g := highest.Generation(); g > newest {
			newest = g
			p.log.Warn("the target has versions already: the inbox takes a generation above them", "service", s.Name, "highest", highest, "generation", int(newest)+1)
		}
	}
	return newest
}

// renewShorter opens a new generation of an inbox that holds less than was decided
// of it: events that came since stand where others stood, below the watermark, or
// would get the versions of these. Where it is not known what is left of what was
// decided, all that is there is read again, and the fence drops what was decided.
func (p *Pipeline) renewShorter(ctx context.Context, inbox store.Inbox, cut *transport.TruncatedError) (store.Inbox, error) {
	marks, err := p.store.Watermarks(ctx)
	if err != nil {
		return inbox, err
	}
	// After the watermarks: what they are behind was there then.
	starts, ends, err := p.logs.AvailableOffsets(ctx, inbox.Topic)
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
	renewed, err := p.store.RenewInbox(ctx, inbox, 0, from)
	if err != nil {
		return inbox, err
	}
	p.gauges.resets.WithLabelValues(inbox.Topic).Inc()
	for _, n := range slices.Sorted(maps.Keys(from)) {
		p.log.Error("the inbox is shorter than what was decided of it: its brokers lost records that they had acknowledged, or its data was put back. What was not decided of them is lost; a new generation of versions begins, and what is there is read again",
			"topic", inbox.Topic, "partition", n, "decided_to", marks[store.Partition{Generation: inbox.Generation, Number: n}], "end", ends[n], "reading_from", from[n], "generation", renewed.Generation)
	}
	return renewed, nil
}

// sayReplaced is called when the store does not know the inbox topic: if it has
// decided what another one held, that one was replaced.
func (p *Pipeline) sayReplaced(ctx context.Context) error {
	marks, err := p.store.Watermarks(ctx)
	if err != nil || len(marks) == 0 {
		return err
	}
	p.gauges.resets.WithLabelValues(p.cfg.Kafka.Inbox.Topic).Inc()
	p.log.Error("the inbox topic is another one than before: records that only the old one held and that were not decided are lost", "topic", p.cfg.Kafka.Inbox.Topic)
	return nil
}

// generation is that of the inbox that events go to. A process that does not decide
// learns of a new one from the watermarks.
func (p *Pipeline) generation() uint16 {
	newest := uint16(p.decidedGeneration.Load())
	if inbox := p.inbox.Load(); inbox != nil {
		newest = max(newest, inbox.Generation)
	}
	return newest
}

// newestGeneration is the highest generation that the changes log knows of: a
// store that was lost or replaced must not give out versions that customers have
// seen already.
func (p *Pipeline) newestGeneration(ctx context.Context) (uint16, error) {
	last, err := p.logs.ReadLast(ctx, p.cfg.Kafka.Changes.Topic)
	if err != nil {
		return 0, err
	}
	var newest uint16
	for _, r := range last {
		if f, err := change.ParseFrameHeader(r.Value); err == nil {
			newest = max(newest, f.To.Generation())
		}
	}
	return newest, nil
}
