package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TopicFault is why a topic, or some of its partitions, takes no record.
type TopicFault struct {
	Topic   string
	Missing bool // it does not exist
	// NoLeader and TooFew are partitions that no broker leads, and those that have
	// fewer replicas in sync than a record needs (min.insync.replicas).
	NoLeader, TooFew []int32
	least            int
}

// Error implements error.
func (f *TopicFault) Error() string {
	switch {
	case f.Missing:
		return fmt.Sprintf("topic %s takes no record: it does not exist", f.Topic)
	case len(f.NoLeader) > 0:
		return fmt.Sprintf("topic %s takes no record in partitions %v: no broker leads them", f.Topic, f.NoLeader)
	}
	return fmt.Sprintf("topic %s takes no record in partitions %v: they have fewer than %d replicas in sync (min.insync.replicas)", f.Topic, f.TooFew, f.least)
}

// Faults returns the faults of topics that take no record in some or all partitions. An
// error says that the cluster does not answer.
func (a *Admin) Faults(ctx context.Context, topics ...string) ([]*TopicFault, error) {
	meta, err := a.adm.ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	least := map[string]int{}
	// A user who may not describe settings learns of missing leaders alone.
	if configs, err := a.adm.DescribeTopicConfigs(ctx, topics...); err == nil {
		for _, topic := range configs {
			for _, c := range topic.Configs {
				if c.Key == "min.insync.replicas" {
					least[topic.Name], _ = strconv.Atoi(c.MaybeValue())
				}
			}
		}
	}
	var faults []*TopicFault
	for _, t := range topics {
		d, ok := meta[t]
		f := &TopicFault{Topic: t, Missing: !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition), least: least[t]}
		for _, n := range slices.Sorted(maps.Keys(d.Partitions)) {
			switch p := d.Partitions[n]; {
			case p.Leader < 0:
				f.NoLeader = append(f.NoLeader, n)
			case len(p.ISR) < f.least:
				f.TooFew = append(f.TooFew, n)
			}
		}
		if f.Missing || len(f.NoLeader)+len(f.TooFew) > 0 {
			faults = append(faults, f)
		}
	}
	return faults, nil
}
