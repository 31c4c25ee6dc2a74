package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrPartitionCount is the error of EnsureTopics for a topic that exists with
// another number of partitions. Changing it would move entities to other
// partitions, so Weir does not.
var ErrPartitionCount = errors.New("partition count differs")

// ErrNoTopicIDs is the error of brokers without topic ids.
var ErrNoTopicIDs = errors.New("the brokers give topics no identity, so that one that was deleted and created again could not be told from the one before: Weir needs brokers with topic ids (Kafka 2.8 or later, and inter.broker.protocol.version 2.8 or later)")

// TopicSpec describes a topic that must exist.
type TopicSpec struct {
	Name        string
	Partitions  int32
	Replication int16 // 0: the cluster's default
	// Configs are the topic's settings. A topic that is there with others is altered.
	// Its max.message.bytes may be larger.
	Configs map[string]string
}

// Admin asks a cluster and creates topics. Safe for concurrent use.
type Admin struct {
	cfg Config
	cl  *kgo.Client
	adm *kadm.Client
}

// NewAdmin does not touch the network yet.
func NewAdmin(cfg Config) (*Admin, error) {
	cl, err := newClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka admin: %w", err)
	}
	return &Admin{cfg: cfg, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close ends the connections.
func (a *Admin) Close() { a.cl.Close() }

// EnsureTopics creates the topics that are missing and returns when all are there, those that it
// made have leaders, and all have the wanted settings. It logs the settings it altered. A topic
// with another number of partitions is an ErrPartitionCount. All such topics are named at once. Two processes may create and alter at the same time.
func (a *Admin) EnsureTopics(ctx context.Context, specs []TopicSpec) error {
	names := make([]string, len(specs))
	partitions := make(map[string]int32, len(specs))
	for i, s := range specs {
		names[i], partitions[s.Name] = s.Name, s.Partitions
	}
	have, err := a.adm.ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	var errs []error
	var there []TopicSpec
	var made []string
	for _, s := range specs {
		d, ok := have[s.Name]
		switch {
		case ok && d.Err == nil:
			there = append(there, s)
			if n := len(d.Partitions); n != int(s.Partitions) {
				errs = append(errs, fmt.Errorf("topic %s has %d partitions, %d configured: %w", s.Name, n, s.Partitions, ErrPartitionCount))
			}
		case !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			made = append(made, s.Name)
			if err := a.create(ctx, s); err != nil {
				errs = append(errs, err)
			}
		case !kerr.IsRetriable(d.Err):
			errs = append(errs, fmt.Errorf("topic %s: %w", s.Name, d.Err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := a.await(ctx, names, made, partitions); err != nil {
		return err
	}
	return a.alter(ctx, there)
}

func (a *Admin) create(ctx context.Context, s TopicSpec) error {
	configs := make(map[string]*string, len(s.Configs))
	for k, v := range s.Configs {
		configs[k] = &v
	}
	replication := s.Replication
	if replication == 0 {
		replication = -1
	}
	_, err := a.adm.CreateTopic(ctx, s.Partitions, replication, configs, s.Name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", s.Name, err)
	}
	return nil
}

// await returns when the cluster serves that many partitions of each topic: right after a
// creation it may not know them yet. For a topic that is not new it waits only as long as
// an election takes: the others do not wait for an unavailable partition.
func (a *Admin) await(ctx context.Context, names, made []string, partitions map[string]int32) error {
	began := time.Now()
	for {
		logs, err := readAvailable(ctx, a.cl, names)
		for t, l := range logs {
			n := len(l.start)
			if n < int(partitions[t]) && (slices.Contains(made, t) || time.Since(began) < availableWithin) {
				err = fmt.Errorf("topic %s shows %d of %d partitions", t, n, partitions[t])
			}
		}
		if err == nil {
			return nil
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("topics created, but not served: %w", err)
		}
	}
}

// TopicID returns a topic's identity, which changes when the topic is deleted
// and created again.
func (a *Admin) TopicID(ctx context.Context, topic string) (string, error) {
	meta, err := a.adm.ListTopics(ctx, topic)
	if err != nil {
		return "", fmt.Errorf("topic %s: %w", topic, err)
	}
	d, ok := meta[topic]
	if !ok {
		return "", fmt.Errorf("topic %s: %w", topic, kerr.UnknownTopicOrPartition)
	}
	if d.Err != nil {
		return "", fmt.Errorf("topic %s: %w", topic, d.Err)
	}
	if d.ID == (kadm.TopicID{}) {
		return "", fmt.Errorf("topic %s: %w", topic, ErrNoTopicIDs)
	}
	return d.ID.String(), nil
}

// Extent returns a topic's identity, and the oldest offset and the end of a partition.
func (a *Admin) Extent(ctx context.Context, topic string, partition int32) (id string, start, end int64, err error) {
	l, err := readPartition(ctx, a.cl, topic, partition)
	return l.id, l.start[partition], l.end[partition], err
}

// Offsets returns the oldest offset and the end of every partition of a topic.
func (a *Admin) Offsets(ctx context.Context, topic string) (start, end map[int32]int64, err error) {
	logs, err := readAvailable(ctx, a.cl, []string{topic})
	if err == nil {
		err = allAvailable(logs)
	}
	if err != nil {
		return nil, nil, err
	}
	return logs[topic].start, logs[topic].end, nil
}

// AvailableOffsets is Offsets without partitions that no broker leads.
func (a *Admin) AvailableOffsets(ctx context.Context, topic string) (start, end map[int32]int64, err error) {
	logs, err := readAvailable(ctx, a.cl, []string{topic})
	if err != nil {
		return nil, nil, err
	}
	return logs[topic].start, logs[topic].end, nil
}

// readPatience is how long a read waits for a record before it checks whether the topic
// still has any of them.
const readPatience = 2 * time.Second

// read hands the records of partitions to see, from the offsets in from up to, not including,
// those in end, in the order of their partition. Records removed by retention are skipped. An
// error of see ends it and is returned as it is.
func (a *Admin) read(ctx context.Context, topic string, from, end map[int32]int64, see func(*kgo.Record) error, opts ...kgo.Opt) error {
	at, open := map[int32]kgo.Offset{}, map[int32]bool{}
	for p, first := range from {
		at[p], open[p] = kgo.NewOffset().At(first), true
	}
	cl, err := newClient(a.cfg, append(opts,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}),
		kgo.KeepControlRecords(), // a partition that ends with one would not end without
		kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(open) > 0 {
		poll, cancel := context.WithTimeout(ctx, readPatience)
		fetches := cl.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		switch err := fetches.Err(); {
		case errors.Is(err, context.DeadlineExceeded):
			// Retention may have removed all that was left, up to the ends.
			logs, err := readAvailable(ctx, a.cl, []string{topic})
			if err != nil {
				return err
			}
			for p := range open {
				if err := logs[topic].failed[p]; err != nil {
					return fmt.Errorf("topic %s, partition %d: %w", topic, p, err)
				}
				if logs[topic].start[p] >= end[p] {
					delete(open, p)
				}
			}
			continue
		case err != nil:
			return fmt.Errorf("read %s: %w", topic, err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if !open[r.Partition] {
				continue // behind its end
			}
			if r.Offset < end[r.Partition] && !r.Attrs.IsControl() {
				if err := see(r); err != nil {
					return err
				}
			}
			if r.Offset >= end[r.Partition]-1 {
				delete(open, r.Partition)
			}
		}
	}
	return nil
}

// checkReadable fails with a plain error when a topic does not exist or may not be read. Without
// it a consumer would wait without end.
func checkReadable(ctx context.Context, adm *kadm.Client, topics ...string) error {
	meta, err := adm.ListTopics(kadm.WithAuthorizedOps(ctx), topics...)
	if err != nil {
		return fmt.Errorf("check topics: %w", err)
	}
	var errs []error
	for _, t := range topics {
		d, ok := meta[t]
		switch {
		case !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			errs = append(errs, fmt.Errorf("topic %s does not exist: %w", t, kerr.UnknownTopicOrPartition))
		case errors.Is(d.Err, kerr.TopicAuthorizationFailed),
			d.Err == nil && len(d.AuthorizedOperations) > 0 && !slices.Contains(d.AuthorizedOperations, kadm.OpRead) && !slices.Contains(d.AuthorizedOperations, kadm.OpAll):
			errs = append(errs, fmt.Errorf("topic %s may not be read by this user: %w", t, kerr.TopicAuthorizationFailed))
		case d.Err != nil && !kerr.IsRetriable(d.Err):
			errs = append(errs, fmt.Errorf("topic %s: %w", t, d.Err))
		case d.Err == nil && d.ID == (kadm.TopicID{}):
			errs = append(errs, fmt.Errorf("topic %s: %w", t, ErrNoTopicIDs))
		}
	}
	return errors.Join(errs...)
}

// CheckReadable fails when a topic does not exist or may not be read by this user. All such
// topics are named at once.
func (a *Admin) CheckReadable(ctx context.Context, topics ...string) error {
	return checkReadable(ctx, a.adm, topics...)
}
