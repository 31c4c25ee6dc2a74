package transport

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
)

// PartitionLag is how far a consumer group is behind in one partition.
type PartitionLag struct {
	Topic     string
	Partition int32
	Committed int64 // next offset to read by the last commit; the oldest when there is none
	End       int64 // offset behind the newest record that consumers may read
}

// Pending is the number of offsets between commit and end: an upper bound of
// the messages waiting, since gaps count.
func (l PartitionLag) Pending() int64 { return max(0, l.End-l.Committed) }

// Lag gives the lag of the whole group, all its members, in every partition of
// the topics that this group consumes or is configured for. It costs four
// requests to the cluster, whatever the number of topics.
func (g *Group) Lag(ctx context.Context) ([]PartitionLag, error) {
	g.mu.Lock()
	topics := slices.Clone(g.gc.Topics)
	for t := range g.topics {
		if !slices.Contains(g.gc.Topics, t) {
			topics = append(topics, t)
		}
	}
	g.mu.Unlock()
	return groupLag(ctx, g.adm, g.gc.ID, topics)
}

// PendingByTopic sums Lag by topic: 0 for a topic that is read to its end.
func (g *Group) PendingByTopic(ctx context.Context) (map[string]int64, error) {
	lags, err := g.Lag(ctx)
	if err != nil {
		return nil, err
	}
	sum := make(map[string]int64)
	for _, l := range lags {
		sum[l.Topic] += l.Pending()
	}
	return sum, nil
}

// Lag is Group.Lag for a group that this process need not be a member of.
func (a *Admin) Lag(ctx context.Context, group string, topics ...string) ([]PartitionLag, error) {
	return groupLag(ctx, a.adm, group, topics)
}

func groupLag(ctx context.Context, adm *kadm.Client, group string, topics []string) ([]PartitionLag, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("lag of group %s: %w", group, err)
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("lag of group %s: %w", group, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("lag of group %s: %w", group, err)
	}
	var lags []PartitionLag
	for t, ps := range ends {
		for p, end := range ps {
			if end.Err != nil {
				return nil, fmt.Errorf("lag of group %s, topic %s, partition %d: %w", group, t, p, end.Err)
			}
			l := PartitionLag{Topic: t, Partition: p, End: end.Offset, Committed: starts[t][p].Offset}
			if o, ok := committed.Lookup(t, p); ok && o.Err == nil {
				l.Committed = max(l.Committed, o.At)
			}
			lags = append(lags, l)
		}
	}
	return lags, nil
}
