package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// onFetched keeps the metadata of the last commits: the identity
// of the topic that their offsets belong to. kgo calls it right before onOffsets.
func (g *Group) onFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	g.fetched = make(map[int32]string)
	note := func(partition int32, metadata *string) {
		if metadata != nil {
			g.fetched[partition] = *metadata
		}
	}
	for _, t := range resp.Topics { // kgo asks for one
		for _, p := range t.Partitions {
			note(p.Partition, p.Metadata)
		}
	}
	for _, gr := range resp.Groups {
		for _, t := range gr.Topics {
			for _, p := range t.Partitions {
				note(p.Partition, p.Metadata)
			}
		}
	}
	return nil
}

// onOffsets decides where newly assigned partitions start and makes their
// assignments. kgo calls it after the committed offsets were read and before
// anything is fetched; heartbeats go on meanwhile, and ctx ends with the group
// session. If ctx ended it is called again in the next session for the partitions
// that are still assigned.
func (g *Group) onOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	ps := offsets[g.gc.Topic]
	if len(ps) == 0 {
		return offsets, nil
	}
	starts, err := g.listenerStarts(ctx, ps)
	if err != nil {
		return nil, err
	}
	// After the listener, whose start may be an offset that was appended meanwhile.
	l, unavailable, err := g.logs(ctx)
	if err != nil {
		g.revoked(ps)
		return nil, err
	}
	if err := g.truncated(starts, l); err != nil && g.gc.FailOnTruncation {
		g.revoked(ps)
		return nil, g.failSession(ctx, err)
	}
	var notify []func()
	defer func() {
		for _, f := range notify { // not under the lock
			f()
		}
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, committed := range ps {
		if err := l.failed[p]; err != nil {
			delete(ps, p)
			g.unavailable[p] = true
			g.log.Error("partition is unavailable; reading the others", "event", "kafka.partition_unavailable", "topic", g.gc.Topic, "partition", p, "err", err)
			continue
		}
		from, listened := starts[p]
		start, more := g.startOf(p, committed, from, listened, l)
		ps[p], notify = start, append(notify, more...)
		g.assign(p, start.EpochOffset().Offset, l)
	}
	g.setAssigned(len(g.assignments))
	if unavailable && !g.closed {
		g.loops.Add(1)
		go g.awaitUnavailable()
	}
	return offsets, nil
}

// listenerStarts returns where the listener starts partitions; nothing without one.
func (g *Group) listenerStarts(ctx context.Context, ps map[int32]kgo.Offset) (map[int32]int64, error) {
	if g.gc.Listener == nil {
		return nil, nil
	}
	starts, err := g.gc.Listener.Assigned(ctx, g.gc.Topic, slices.Collect(maps.Keys(ps)))
	switch {
	case err == nil:
		return starts, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, g.failSession(ctx, fmt.Errorf("topic %s: take over partitions: %w", g.gc.Topic, err))
}

// revoked follows a success of the listener's Assigned where nothing comes of it.
func (g *Group) revoked(ps map[int32]kgo.Offset) {
	if g.gc.Listener != nil {
		g.gc.Listener.Revoked(g.gc.Topic, slices.Collect(maps.Keys(ps)))
	}
}

// failSession ends the group, and returns the error of ctx when its session has ended.
func (g *Group) failSession(ctx context.Context, err error) error {
	g.fail(err)
	<-ctx.Done() // Close ends the session
	return ctx.Err()
}

// startOf returns where a partition starts: at the listener's offset, at the committed one, or at
// the oldest record; and the function to notify of that. The caller holds g.mu.
func (g *Group) startOf(p int32, committed kgo.Offset, from int64, listened bool, l topicLog) (start kgo.Offset, notify []func()) {
	at := committed.EpochOffset().Offset // below 0: none was committed
	if _, known := l.start[p]; !known {  // added after we asked: it begins at 0
		l.start[p], l.end[p] = 0, max(0, at)
	}
	oldest, end := l.start[p], l.end[p]
	lost := func(wanted int64) (kgo.Offset, []func()) {
		return kgo.NewOffset().At(oldest), append(notify, func() { g.reportLost(p, wanted, oldest) })
	}
	id := g.fetched[p]
	foreign := id != "" && id != l.id // the commit is of an earlier topic of this name
	last, seen := g.last[p]
	delete(g.last, p)
	start = committed
	switch {
	case listened && foreign && !g.gc.FailOnTruncation: // the listener's offset is, too
		return lost(from)
	case listened:
		if from < at && !foreign && g.gc.OnRewind != nil {
			rewound := at
			notify = append(notify, func() { g.gc.OnRewind(g.gc.Topic, p, rewound, from) })
		}
		start, at = kgo.NewOffset().At(from), from
	case at >= 0 && foreign:
		return lost(at)
	case at < 0 && seen && last.topicID != l.id:
		return lost(last.next)
	case at < 0 && seen && last.wanted < oldest:
		return lost(last.wanted)
	}
	switch {
	case at < 0:
		return kgo.NewOffset().At(oldest), notify
	case at < oldest || at > end:
		return lost(at)
	}
	return start, notify
}

// assign makes the assignment of a partition that starts at an offset. The caller
// holds g.mu.
func (g *Group) assign(p int32, start int64, l topicLog) {
	a := newAssignment(g, p, l.id, start, l.end[p])
	g.assignments[p] = a
	a.dispatch(g.Subscription)
}

// reportLost logs and reports that records between wanted and got are lost.
func (g *Group) reportLost(p int32, wanted, got int64) {
	g.log.Error("records expired before they were read; resuming at the oldest", "event", "kafka.records_lost",
		"topic", g.gc.Topic, "partition", p, "wanted", wanted, "got", got)
	g.notifyLost(p, wanted, got)
}

// notifyLost calls OnRecordsLost, if it is set.
func (g *Group) notifyLost(p int32, wanted, got int64) {
	if g.gc.OnRecordsLost != nil {
		g.gc.OnRecordsLost(g.gc.Topic, p, wanted, got)
	}
}

// fetchFrom lets the next fetch of a partition begin at an offset.
func (g *Group) fetchFrom(p int32, at kgo.EpochOffset) {
	g.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{g.gc.Topic: {p: at}})
}

// release ends the assignments of partitions that went away. kgo calls it while no
// poll is under way.
func (g *Group) release(gone map[string][]int32, commit bool) {
	var released []*assignment
	var ended []int32
	g.mu.Lock()
	for _, p := range gone[g.gc.Topic] {
		if a := g.assignments[p]; a != nil {
			delete(g.assignments, p)
			released = append(released, a)
			ended = append(ended, p)
		}
		if g.unavailable[p] { // the listener had it assigned
			delete(g.unavailable, p)
			ended = append(ended, p)
		}
	}
	g.setAssigned(len(g.assignments))
	g.mu.Unlock()
	for _, a := range released {
		a.cancel()
	}
	for _, a := range released {
		a.end()
	}
	g.mu.Lock()
	for _, a := range released {
		g.last[a.partition] = lastSeen{a.topicID, a.wanted(), a.position()}
	}
	g.mu.Unlock()
	if g.gc.Listener != nil && len(ended) > 0 {
		g.gc.Listener.Revoked(g.gc.Topic, ended)
	}
	if commit {
		ctx, cancel := context.WithTimeout(g.gc.Limit, commitTimeout)
		defer cancel()
		g.commit(ctx, released)
	}
}

// commit sends the positions of assignments that moved and waits for the answer.
func (g *Group) commit(ctx context.Context, assignments []*assignment) {
	g.commitMu.Lock()
	defer g.commitMu.Unlock()
	offsets := make(map[int32]kgo.EpochOffset)
	moved := make(map[int32]*assignment)
	for _, a := range assignments {
		if o, ok := a.toCommit(); ok {
			offsets[a.partition], moved[a.partition] = o, a
		}
	}
	if len(offsets) == 0 {
		return
	}
	crash.At(crash.Committing, g.gc.ID)
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				p := &t.Partitions[j]
				if a := moved[p.Partition]; a != nil {
					p.Metadata = &a.topicID
				}
			}
		}
		return nil
	})
	all := map[string]map[int32]kgo.EpochOffset{g.gc.Topic: offsets}
	g.cl.CommitOffsetsSync(ctx, all, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			if ctx.Err() == nil && g.quiet.allow("commit") {
				g.log.Warn("cannot commit offsets; retrying", "event", "kafka.commit_failed", "err", err)
			}
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					if g.quiet.allow("commit " + err.Error()) {
						g.log.Warn("cannot commit an offset", "event", "kafka.commit_failed", "topic", t.Topic, "partition", p.Partition, "err", err)
					}
					continue
				}
				if a := moved[p.Partition]; a != nil {
					a.wasCommitted(offsets[p.Partition].Offset)
				}
			}
		}
	})
	crash.At(crash.Committed, g.gc.ID)
}

// fetchError handles the errors of a poll. kgo recovers from most of them.
func (g *Group) fetchError(topic string, partition int32, err error) {
	var loss *kgo.ErrDataLoss
	var large *kgo.ErrDecompressTooLarge
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, kerr.OffsetOutOfRange):
		g.outOfRange(partition)
	case errors.As(err, &loss) && g.gc.FailOnTruncation:
		g.lostRecords(partition, loss)
	case errors.As(err, &loss):
		g.reportLost(partition, loss.ConsumedTo, loss.ResetTo)
	case errors.As(err, &large) && !g.gc.FailOnTruncation:
		g.log.Error("skipping a batch that exceeds the size limit when unpacked", "event", "kafka.batch_skipped", "topic", topic, "partition", partition, "from", large.Offset, "to", large.NextOffset)
		g.notifyLost(partition, large.Offset, large.NextOffset)
		g.fetchFrom(partition, kgo.EpochOffset{Epoch: large.Epoch, Offset: large.NextOffset})
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		if g.quiet.allow("gone " + topic) {
			g.log.Error("topic was deleted or re-created; rejoining", "event", "kafka.topic_replaced", "topic", topic, "err", err)
		}
		g.rejoin()
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		if g.quiet.allow("forbidden " + topic) {
			g.log.Error("not allowed to read the topic; retrying", "event", "kafka.topic_forbidden", "topic", topic, "err", err)
		}
		g.rejoin()
	default:
		if g.quiet.allow("fetch " + topic + err.Error()) {
			g.log.Error("cannot fetch; retrying", "event", "kafka.fetch_failed", "topic", topic, "partition", partition, "err", err)
		}
	}
}

// TruncatedError says that a topic holds less than was read of it: its broker lost
// records that it had acknowledged, or its data was restored.
type TruncatedError struct {
	Topic, TopicID string
	Partition      int32
	Wanted         int64 // where reading was to continue
	End            int64 // of the topic
	// Kept is up to where the records are those that were read, 0 where that is not known.
	Kept int64
}

// Error implements error.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("topic %s, partition %d, ends at %d, and was read up to %d: records are lost that were acknowledged", e.Topic, e.Partition, e.End, e.Wanted)
}

// truncated compares where partitions are to start with their ends.
func (g *Group) truncated(starts map[int32]int64, l topicLog) error {
	for _, p := range slices.Sorted(maps.Keys(starts)) {
		if end, known := l.end[p]; known && starts[p] > end {
			return &TruncatedError{Topic: g.gc.Topic, TopicID: l.id, Partition: p, Wanted: starts[p], End: end}
		}
	}
	return nil
}

// lostRecords ends the group after the brokers said that the last records read are not
// in the topic.
func (g *Group) lostRecords(p int32, loss *kgo.ErrDataLoss) {
	g.mu.Lock()
	a := g.assignments[p]
	g.mu.Unlock()
	if a != nil {
		g.fail(&TruncatedError{Topic: g.gc.Topic, TopicID: a.topicID, Partition: p, Wanted: loss.ConsumedTo, End: loss.ResetTo, Kept: loss.ResetTo})
	}
}

// outOfRange moves a partition whose next record was deleted to its oldest record. The poll loop
// calls it, so nothing is revoked meanwhile.
func (g *Group) outOfRange(p int32) {
	l, err := readPartition(g.pollCtx, g.cl, g.gc.Topic, p)
	if err != nil {
		if g.pollCtx.Err() == nil && g.quiet.allow("range") {
			g.log.Error("offset out of range, and cannot read the oldest offset; retrying", "event", "kafka.offsets_unknown", "topic", g.gc.Topic, "partition", p, "err", err)
		}
		return
	}
	g.mu.Lock()
	a := g.assignments[p]
	g.mu.Unlock()
	if a == nil {
		return
	}
	start, wanted := l.start[p], a.position()
	if a.topicID != l.id || wanted > l.end[p] {
		// Another log under the same name: its offsets begin again, and so
		// must the assignment.
		g.rejoin()
		return
	}
	g.reportLost(p, wanted, start)
	g.fetchFrom(p, kgo.EpochOffset{Epoch: -1, Offset: start})
}

// rejoin leaves the topic and joins it again, which ends its assignments and starts
// others. It runs beside the poll loop, because a purge waits for a rebalance.
func (g *Group) rejoin() {
	g.mu.Lock()
	busy := g.replaced || g.closed
	if !busy {
		g.replaced = true
		g.loops.Add(1)
	}
	g.mu.Unlock()
	if busy {
		return
	}
	go func() {
		defer g.loops.Done()
		g.cl.PurgeTopicsFromConsuming(g.gc.Topic)
		if _, err := wait.Retry(g.pollCtx, g.pollCtx, g.log, "rejoin the topic", func() error {
			return checkReadable(g.pollCtx, g.adm, g.gc.Topic)
		}); err != nil {
			return
		}
		g.mu.Lock()
		g.replaced = false
		g.mu.Unlock()
		g.cl.AddConsumeTopics(g.gc.Topic)
	}()
}
