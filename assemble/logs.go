package assemble

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/embedded"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Logs are the inbox: a topic of a cluster, or a table of the SQLite file of the state.
type Logs interface {
	transport.Appender
	// Offsets returns the first and the next offset of each partition of a topic.
	Offsets(ctx context.Context, topic string) (start, end map[int32]int64, err error)
	// OffsetsAt returns the first offset of each partition at or after a time.
	OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int32]int64, error)
	// Scan reads the records between two offsets of each partition.
	Scan(ctx context.Context, topic string, from, to map[int32]int64, f func(transport.Scanned) error) error
	// Ensure creates the missing topics, and changes the settings of the others.
	Ensure(ctx context.Context, topics []transport.TopicSpec) error
	// TopicID returns a topic's identity; kerr.UnknownTopicOrPartition without one.
	TopicID(ctx context.Context, topic string) (string, error)
	// AvailableOffsets is Offsets of the partitions that answer at present.
	AvailableOffsets(ctx context.Context, topic string) (starts, ends map[int32]int64, err error)
	// Faults returns why topics, or partitions of them, take no record.
	Faults(ctx context.Context, topics ...string) ([]*transport.TopicFault, error)
	// NewGroup makes a consumer group; nil on an error.
	NewGroup(ctx context.Context, gc transport.GroupConfig) (Group, error)
	// Failing returns why the last append is not durable yet, or nil when it is, or when that is
	// unknown.
	Failing() error
	// Close waits for appends under way until ctx ends.
	Close(ctx context.Context) error
}

// Group is a transport.Group, or an embedded.Group.
type Group interface {
	Subscriber() message.Subscriber
	Failed() <-chan struct{}
	Err() error
	Close() error
}

// OpenLogs opens the inbox beside an open store. The error is
// embedded.ErrInUse when another process has the SQLite file open.
func OpenLogs(c *config.Config, s Store, log *slog.Logger) (Logs, error) {
	if file, ok := s.(*sqlite.Store); ok && c.Kafka.Embedded() {
		l, err := embedded.Open(file, c.Store.File, log)
		if err != nil {
			return nil, err
		}
		return FileLogs{l}, nil
	}
	cluster, _, err := Cluster(c, c.Kafka.Cluster, log)
	if err != nil {
		return nil, err
	}
	admin, err := transport.NewAdmin(cluster)
	if err != nil {
		return nil, err
	}
	producer, err := Producer(c, cluster, kgo.SnappyCompression())
	if err != nil {
		admin.Close()
		return nil, err
	}
	return clusterLogs{admin, producer, c, cluster}, nil
}

// ShareLogs is OpenLogs beside the process that has the SQLite file open.
func ShareLogs(c *config.Config, s Store, log *slog.Logger) Logs {
	return FileLogs{embedded.Share(s.(*sqlite.Store), c.Store.File, log)}
}

// clusterLogs are topics of a cluster.
type clusterLogs struct {
	*transport.Admin
	*transport.Producer
	cfg     *config.Config
	cluster transport.Config
}

func (l clusterLogs) Close(ctx context.Context) error {
	err := l.Producer.Close(ctx)
	l.Admin.Close()
	return err
}

func (l clusterLogs) Ensure(ctx context.Context, topics []transport.TopicSpec) error {
	return l.EnsureTopics(ctx, topics)
}

func (l clusterLogs) NewGroup(ctx context.Context, gc transport.GroupConfig) (Group, error) {
	return transport.NewGroup(ctx, l.cluster, gc)
}

func (clusterLogs) Failing() error { return nil }

// FileLogs are tables of the SQLite file of the state.
type FileLogs struct{ *embedded.Logs }

// Close implements Logs.
func (l FileLogs) Close(context.Context) error { return l.Release() }

// Ensure implements Logs.
func (l FileLogs) Ensure(ctx context.Context, topics []transport.TopicSpec) error {
	var errs []error
	for _, t := range topics {
		errs = append(errs, l.Logs.Ensure(ctx, t.Name, t.Partitions))
	}
	return errors.Join(errs...)
}

// NewGroup implements Logs.
func (l FileLogs) NewGroup(ctx context.Context, gc transport.GroupConfig) (Group, error) {
	return l.Logs.NewGroup(ctx, gc)
}

// AvailableOffsets is Offsets: all partitions are in one file.
func (l FileLogs) AvailableOffsets(ctx context.Context, topic string) (starts, ends map[int32]int64, err error) {
	return l.Offsets(ctx, topic)
}

// Faults returns no faults: the store reports the faults of its file.
func (FileLogs) Faults(context.Context, ...string) ([]*transport.TopicFault, error) { return nil, nil }
