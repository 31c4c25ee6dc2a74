package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicLog is the extent of a topic: identity, oldest offset and end.
type topicLog struct {
	id         string
	start, end map[int32]int64 // without those of failed
	failed     map[int32]error // partitions that are not available
}

// availableWithin is how long the others wait for a partition without a leader: elections
// are short.
const availableWithin = 5 * time.Second

// logs asks the cluster until it answers or ctx ends: without an answer no
// partition can start safely. unavailable says that some partitions are not available,
// for longer than an election takes.
func (g *Group) logs(ctx context.Context) (l topicLog, unavailable bool, err error) {
	began := time.Now()
	for try := 0; ; try++ {
		logs, err := readAvailable(ctx, g.cl, []string{g.gc.Topic})
		if err == nil {
			if err = allAvailable(logs); err == nil {
				return logs[g.gc.Topic], false, nil
			}
			if time.Since(began) > availableWithin && ctx.Err() == nil {
				return logs[g.gc.Topic], true, nil
			}
		}
		if ctx.Err() != nil {
			return topicLog{}, false, ctx.Err()
		}
		if g.quiet.allow("logs") {
			g.log.Error("cannot read the topic's offsets; retrying", "event", "kafka.offsets_unknown", "err", err)
		}
		if !wait.Sleep(ctx, retryBackoff(try)) {
			return topicLog{}, false, ctx.Err()
		}
	}
}

// awaitUnavailable rejoins the topic once a partition that was unavailable is available.
func (g *Group) awaitUnavailable() {
	defer g.loops.Done()
	for wait.Sleep(g.pollCtx, time.Second) {
		logs, err := readAvailable(g.pollCtx, g.cl, []string{g.gc.Topic})
		if err != nil {
			continue
		}
		available := false
		g.mu.Lock()
		for p := range g.unavailable {
			available = available || logs[g.gc.Topic].failed[p] == nil
		}
		waiting := len(g.unavailable) > 0
		g.mu.Unlock()
		if available {
			g.rejoin()
		}
		if available || !waiting {
			return // the next assignment finds partitions that are still unavailable
		}
	}
}

// allAvailable fails when a partition is not available.
func allAvailable(logs map[string]topicLog) error {
	var errs []error
	for t, l := range logs {
		for p, err := range l.failed {
			errs = append(errs, fmt.Errorf("topic %s, partition %d: %w", t, p, err))
		}
	}
	return errors.Join(errs...)
}

// readPartition asks for the extent of a topic. It fails when the partition is not available.
func readPartition(ctx context.Context, cl *kgo.Client, topic string, partition int32) (topicLog, error) {
	logs, err := readAvailable(ctx, cl, []string{topic})
	if err != nil {
		return topicLog{}, err
	}
	return logs[topic], logs[topic].failed[partition]
}

// readAvailable requests the extents of topics, without partitions that no broker leads: a
// request for their offsets would wait for a leader.
func readAvailable(ctx context.Context, cl *kgo.Client, topics []string) (map[string]topicLog, error) {
	within, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	meta, err := kadm.NewClient(cl).ListTopics(within, topics...)
	if err != nil {
		return nil, err
	}
	logs := make(map[string]topicLog, len(topics))
	for _, t := range topics {
		d, ok := meta[t]
		if !ok {
			return nil, fmt.Errorf("topic %s: %w", t, kerr.UnknownTopicOrPartition)
		}
		if d.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", t, d.Err)
		}
		l := topicLog{id: d.ID.String(), start: map[int32]int64{}, end: map[int32]int64{}, failed: map[int32]error{}}
		for p, partition := range d.Partitions {
			if partition.Leader < 0 {
				l.failed[p] = errors.Join(kerr.LeaderNotAvailable, partition.Err)
			}
		}
		logs[t] = l
	}
	const oldest, newest = -2, -1
	for _, at := range []int64{oldest, newest} {
		if err := listOffsets(ctx, cl, at, meta, logs, func(l topicLog) map[int32]int64 {
			if at == oldest {
				return l.start
			}
			return l.end
		}); err != nil {
			return nil, err
		}
	}
	for t, l := range logs {
		for p := range meta[t].Partitions {
			_, began := l.start[p]
			_, ended := l.end[p]
			if l.failed[p] == nil && !(began && ended) {
				return nil, fmt.Errorf("topic %s, partition %d: the brokers say nothing of it", t, p)
			}
			if l.failed[p] != nil {
				delete(l.start, p)
				delete(l.end, p)
			}
		}
	}
	return logs, nil
}

// askPatience bounds one request about topics or offsets.
const askPatience = 10 * time.Second

// listOffsets asks for one offset of each partition that has not failed.
func listOffsets(ctx context.Context, cl *kgo.Client, at int64, meta kadm.TopicDetails, logs map[string]topicLog, of func(topicLog) map[int32]int64) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for t, l := range logs {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = t
		for p := range meta[t].Partitions {
			if l.failed[p] == nil {
				partition := kmsg.NewListOffsetsRequestTopicPartition()
				partition.Partition, partition.Timestamp = p, at
				topic.Partitions = append(topic.Partitions, partition)
			}
		}
		if len(topic.Partitions) > 0 {
			req.Topics = append(req.Topics, topic)
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, askPatience) // the broker of one partition may be silent
	defer cancel()
	for _, shard := range cl.RequestSharded(within, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.ListOffsetsRequest).Topics {
				for _, p := range t.Partitions {
					logs[t.Topic].failed[p.Partition] = shard.Err
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					logs[t.Topic].failed[p.Partition] = err
					continue
				}
				of(logs[t.Topic])[p.Partition] = p.Offset
			}
		}
	}
	return ctx.Err()
}
