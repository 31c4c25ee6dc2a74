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

// onFetched keeps what the last commits said beside the offsets: the identity
// of the topic that they belong to. kgo calls it right before onOffsets.
func (g *Group) onFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	g.fetched = make(map[topicPartition]string)
	topic := func(name string, partition int32, metadata *string) {
		if metadata != nil {
			g.fetched[topicPartition{name, partition}] = *metadata
		}
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			topic(t.Topic, p.Partition, p.Metadata)
		}
	}
	for _, gr := range resp.Groups {
		for _, t := range gr.Topics {
			for _, p := range t.Partitions {
				topic(t.Topic, p.Partition, p.Metadata)
			}
		}
	}
	return nil
}

// onOffsets decides where newly assigned partitions start and makes their
// assignments. kgo calls it after the committed offsets were read and before
// anything is fetched; heartbeats go on meanwhile, and ctx ends with the group
// session. If ctx ended it is called again in the next session for what is
// still assigned.
func (g *Group) onOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	starts, err := g.listenerStarts(ctx, offsets)
	if err != nil {
		return nil, err
	}
	topics := slices.Collect(maps.Keys(offsets))
	// After the listener: what it starts behind may have been appended meanwhile.
	logs, away, err := g.logs(ctx, topics)
	if err != nil {
		g.revoked(starts, offsets)
		return nil, err
	}
	if err := truncated(starts, logs); err != nil && g.gc.FailOnTruncation {
		g.revoked(starts, offsets)
		return nil, g.failSession(ctx, err)
	}
	var tells []func()
	defer func() {
		for _, tell := range tells { // not under the lock
			tell()
		}
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	for t, ps := range offsets {
		for p, committed := range ps {
			tp := topicPartition{t, p}
			if err := logs[t].failed[p]; err != nil {
				delete(ps, p)
				g.away[tp] = true
				g.log.Error("a partition is not available; the others go on without it", "topic", t, "partition", p, "err", err)
				continue
			}
			from, listened := starts[t][p]
			start, tell := g.startOf(tp, committed, from, listened, logs[t])
			ps[p], tells = start, append(tells, tell...)
			g.assign(tp, start.EpochOffset().Offset, logs[t])
		}
	}
	g.setAssigned(len(g.assignments))
	if away && !g.closed {
		g.loops.Add(1)
		go g.awaitAway(topics)
	}
	return offsets, nil
}

// listenerStarts returns where the listener starts partitions, by topic; nothing
// without a listener.
func (g *Group) listenerStarts(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]int64, error) {
	starts := make(map[string]map[int32]int64, len(offsets))
	if g.gc.Listener == nil {
		return starts, nil
	}
	for t, ps := range offsets {
		at, err := g.gc.Listener.Assigned(ctx, t, slices.Collect(maps.Keys(ps)))
		if err == nil {
			starts[t] = at
			continue
		}
		g.revoked(starts, offsets)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, g.failSession(ctx, fmt.Errorf("topic %s: take over partitions: %w", t, err))
	}
	return starts, nil
}

// revoked follows each success of the listener's Assigned where nothing comes of it.
func (g *Group) revoked(starts map[string]map[int32]int64, offsets map[string]map[int32]kgo.Offset) {
	for t := range starts {
		g.gc.Listener.Revoked(t, slices.Collect(maps.Keys(offsets[t])))
	}
}

// failSession ends the group, and returns the error of ctx when its session has ended.
func (g *Group) failSession(ctx context.Context, err error) error {
	g.fail(err)
	<-ctx.Done() // Close ends the session
	return ctx.Err()
}

// startOf returns where a partition starts: at the listener's offset, at the committed
// one, or at the oldest record; and what has to be told of that. The caller holds g.mu.
func (g *Group) startOf(tp topicPartition, committed kgo.Offset, from int64, listened bool, l topicLog) (start kgo.Offset, tells []func()) {
	at := committed.EpochOffset().Offset           // below 0: none was committed
	if _, known := l.start[tp.partition]; !known { // added after we asked: it begins at 0
		l.start[tp.partition], l.end[tp.partition] = 0, max(0, at)
	}
	oldest, end := l.start[tp.partition], l.end[tp.partition]
	lost := func(wanted int64) (kgo.Offset, []func()) {
		return kgo.NewOffset().At(oldest), append(tells, func() { g.moved(tp, wanted, oldest) })
	}
	id := g.fetched[tp]
	foreign := id != "" && id != l.id // the commit is of an earlier topic of this name
	last, seen := g.last[tp]
	delete(g.last, tp)
	start = committed
	switch {
	case listened && foreign && !g.gc.FailOnTruncation: // the listener's offset is, too
		return lost(from)
	case listened:
		if from < at && !foreign && g.gc.OnRewind != nil {
			rewound := at
			tells = append(tells, func() { g.gc.OnRewind(tp.topic, tp.partition, rewound, from) })
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
		return kgo.NewOffset().At(oldest), tells
	case at < oldest || at > end:
		return lost(at)
	}
	return start, tells
}

// assign makes the assignment of a partition that starts at an offset. The caller
// holds g.mu.
func (g *Group) assign(tp topicPartition, start int64, l topicLog) {
	a := newAssignment(g, tp, l.id, start, l.end[tp.partition])
	g.assignments[tp] = a
	if s := g.subscriptions[tp.topic]; s != nil && !s.Stopped() {
		startDispatcher(a, s)
	}
}

// moved says that records between wanted and got are gone.
func (g *Group) moved(tp topicPartition, wanted, got int64) {
	g.log.Error("records that were still wanted are gone from the topic; going on at the oldest",
		"topic", tp.topic, "partition", tp.partition, "wanted", wanted, "got", got)
	if g.gc.OnRecordsLost != nil {
		g.gc.OnRecordsLost(tp.topic, tp.partition, wanted, got)
	}
}

// release ends the assignments of partitions that went away. kgo calls it while no
// poll is under way.
func (g *Group) release(gone map[string][]int32, commit bool) {
	var released []*assignment
	ended := make(map[string][]int32)
	g.mu.Lock()
	for t, ps := range gone {
		for _, p := range ps {
			tp := topicPartition{t, p}
			if a := g.assignments[tp]; a != nil {
				delete(g.assignments, tp)
				released = append(released, a)
				ended[t] = append(ended[t], p)
			}
			if g.away[tp] { // the listener was told of it
				delete(g.away, tp)
				ended[t] = append(ended[t], p)
			}
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
		g.last[a.tp] = lastSeen{a.topicID, a.wanted(), a.position()}
	}
	g.mu.Unlock()
	if g.gc.Listener != nil {
		for t, ps := range ended {
			g.gc.Listener.Revoked(t, ps)
		}
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
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	byTP := make(map[topicPartition]*assignment)
	for _, a := range assignments {
		o, ok := a.toCommit()
		if !ok {
			continue
		}
		if offsets[a.tp.topic] == nil {
			offsets[a.tp.topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[a.tp.topic][a.tp.partition] = o
		byTP[a.tp] = a
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
				if a := byTP[topicPartition{t.Topic, p.Partition}]; a != nil {
					p.Metadata = &a.topicID
				}
			}
		}
		return nil
	})
	g.cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			if ctx.Err() == nil && g.quiet.allow("commit") {
				g.log.Warn("cannot commit offsets; they are committed later", "err", err)
			}
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					if g.quiet.allow("commit " + err.Error()) {
						g.log.Warn("cannot commit an offset", "topic", t.Topic, "partition", p.Partition, "err", err)
					}
					continue
				}
				if a := byTP[topicPartition{t.Topic, p.Partition}]; a != nil {
					a.wasCommitted(offsets[t.Topic][p.Partition].Offset)
				}
			}
		}
	})
	crash.At(crash.Committed, g.gc.ID)
}

// fetchError handles what a poll brought beside records. kgo goes on by itself
// after most of it.
func (g *Group) fetchError(topic string, partition int32, err error) {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, kerr.OffsetOutOfRange):
		g.outOfRange(topicPartition{topic, partition})
	case errors.As(err, &loss) && g.gc.FailOnTruncation:
		g.lostRecords(topicPartition{topic, partition}, loss)
	case errors.As(err, &loss):
		g.moved(topicPartition{topic, partition}, loss.ConsumedTo, loss.ResetTo)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		if g.quiet.allow("gone " + topic) {
			g.log.Error("topic is gone or was created again; joining it anew", "topic", topic, "err", err)
		}
		g.rejoin(topic)
	default:
		if g.quiet.allow("fetch " + topic + err.Error()) {
			g.log.Error("cannot fetch; trying again", "topic", topic, "partition", partition, "err", err)
		}
	}
}

// TruncatedError says that a topic holds less than was read of it: its broker lost
// records that it had acknowledged, or its data was put back.
type TruncatedError struct {
	Topic, TopicID string
	Partition      int32
	Wanted         int64 // where reading was to go on
	End            int64 // of the topic
	// Kept is up to where the records are those that were read; 0 where that is
	// not known.
	Kept int64
}

// Error says what is shorter than it was.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("topic %s, partition %d, ends at %d, and was read up to %d: records are lost that were acknowledged", e.Topic, e.Partition, e.End, e.Wanted)
}

// truncated compares where partitions are to start with their ends.
func truncated(starts map[string]map[int32]int64, logs map[string]topicLog) error {
	for t, at := range starts {
		for _, p := range slices.Sorted(maps.Keys(at)) {
			if end, known := logs[t].end[p]; known && at[p] > end {
				return &TruncatedError{Topic: t, TopicID: logs[t].id, Partition: p, Wanted: at[p], End: end}
			}
		}
	}
	return nil
}

// lostRecords ends the group after the brokers said that what was read last is not
// in the topic any more.
func (g *Group) lostRecords(tp topicPartition, loss *kgo.ErrDataLoss) {
	g.mu.Lock()
	a := g.assignments[tp]
	g.mu.Unlock()
	if a != nil {
		g.fail(&TruncatedError{Topic: tp.topic, TopicID: a.topicID, Partition: tp.partition, Wanted: loss.ConsumedTo, End: loss.ResetTo, Kept: loss.ResetTo})
	}
}

// outOfRange sets a partition whose next record is gone to the oldest there
// is. The poll loop calls it, so nothing is revoked meanwhile.
func (g *Group) outOfRange(tp topicPartition) {
	l, err := readPartition(g.pollCtx, g.cl, tp)
	if err != nil {
		if g.pollCtx.Err() == nil && g.quiet.allow("range "+tp.topic) {
			g.log.Error("offset out of range, and cannot read where the topic begins; trying again", "topic", tp.topic, "partition", tp.partition, "err", err)
		}
		return
	}
	g.mu.Lock()
	a := g.assignments[tp]
	g.mu.Unlock()
	if a == nil {
		return
	}
	start, wanted := l.start[tp.partition], a.position()
	if a.topicID != l.id || wanted > l.end[tp.partition] {
		// Another log under the same name: its offsets begin again, and so
		// must the assignment.
		g.rejoin(tp.topic)
		return
	}
	g.moved(tp, wanted, start)
	g.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{tp.topic: {tp.partition: {Epoch: -1, Offset: start}}})
}

// rejoin gives a topic up and joins it anew, which ends its assignments and starts
// others. It runs beside the poll loop, because a purge waits for a rebalance.
func (g *Group) rejoin(topic string) {
	g.mu.Lock()
	busy := g.replaced[topic] || g.closed
	if !busy {
		g.replaced[topic] = true
		g.loops.Add(1)
	}
	g.mu.Unlock()
	if busy {
		return
	}
	go func() {
		defer g.loops.Done()
		g.cl.PurgeTopicsFromConsuming(topic)
		for try := 0; ; try++ {
			err := checkReadable(g.pollCtx, g.adm, topic)
			if err == nil {
				break
			}
			if !wait.Sleep(g.pollCtx, retryBackoff(try)) {
				return
			}
		}
		g.mu.Lock()
		delete(g.replaced, topic)
		g.mu.Unlock()
		g.cl.AddConsumeTopics(topic)
	}()
}
