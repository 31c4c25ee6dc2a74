package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// PartitionLag is how far a consumer group is behind in one partition.
type PartitionLag struct {
	Topic     string
	Partition int32
	Committed int64 // next offset to read by the last commit; the oldest without one
	End       int64 // offset behind the newest record that consumers may read
	// Newest is the offset behind the newest record: above End while a producer has a
	// transaction open.
	Newest int64
}

// Pending is the number of offsets between commit and end: an upper bound of
// the messages waiting, since gaps count.
func (l PartitionLag) Pending() int64 { return max(0, l.End-l.Committed) }

// Held is the number of offsets behind the start of an open transaction.
func (l PartitionLag) Held() int64 { return max(0, l.Newest-l.End) }

// Lag returns the lag of the whole group, all its members, in every partition of
// its topic.
func (g *Group) Lag(ctx context.Context) ([]PartitionLag, error) {
	return groupLag(ctx, g.adm, g.gc.ID, g.gc.Topic)
}

// Lag is Group.Lag for a group that this process need not be a member of.
func (a *Admin) Lag(ctx context.Context, group, topic string) ([]PartitionLag, error) {
	return groupLag(ctx, a.adm, group, topic)
}

func groupLag(ctx context.Context, adm *kadm.Client, group, topic string) (lags []PartitionLag, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("lag of group %s, topic %s: %w", group, topic, err)
		}
	}()
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	meta, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	// Before the stable ends: a difference is due to an open transaction.
	newest, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	for p, end := range ends[topic] {
		if end.Err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, end.Err)
		}
		l := PartitionLag{Topic: topic, Partition: p, End: end.Offset, Newest: newest[topic][p].Offset, Committed: starts[topic][p].Offset}
		// A commit of an earlier topic of this name says nothing of this one.
		if o, ok := committed.Lookup(topic, p); ok && o.Err == nil && (o.Metadata == "" || o.Metadata == meta[topic].ID.String()) {
			l.Committed = max(l.Committed, o.At)
		}
		lags = append(lags, l)
	}
	return lags, nil
}

// CommitMetadata returns the metadata of the group's commits of a topic, by partition: the
// identity of their topic.
func (a *Admin) CommitMetadata(ctx context.Context, group, topic string) (map[int32]string, error) {
	committed, err := a.adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	metadata := make(map[int32]string)
	for p, o := range committed[topic] {
		if o.Err == nil {
			metadata[p] = o.Metadata
		}
	}
	return metadata, nil
}

// Drained reports whether the group's commits have passed every record of a topic, and no
// transaction is open. Unlike a lag of 0 it does not wait for markers of
// transactions, behind which some clients do not commit.
func (a *Admin) Drained(ctx context.Context, group, topic string) (bool, error) {
	lags, err := a.Lag(ctx, group, topic)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(lags, func(l PartitionLag) bool { return l.Held() > 0 }) {
		return false, nil
	}
	from, end := make(map[int32]int64), make(map[int32]int64)
	for _, l := range lags {
		if l.Pending() > 0 {
			from[l.Partition], end[l.Partition] = l.Committed, l.End
		}
	}
	if len(from) == 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainedTimeout)
	defer cancel()
	err = a.read(ctx, topic, from, end, func(*kgo.Record) error { return errUnread }, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil && !errors.Is(err, errUnread) {
		return false, fmt.Errorf("look for unread records of %s: %w", topic, err)
	}
	return err == nil, nil
}

var errUnread = errors.New("there are unread records")

const drainedTimeout = 5 * time.Second
