package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/seed-86dfc502/weir/transport/embedded"
	"github.com/twmb/franz-go/pkg/kgo"
)

// logs are the inbox and the changes log: topics of a cluster, or tables of the
// SQLite file that has the state.
type logs interface {
	operate.Log
	transport.Appender
	// Ensure makes the topics that are missing, and gives the others the settings
	// that are wanted.
	Ensure(ctx context.Context, topics []transport.TopicSpec) error
	// TopicID returns a topic's identity; kerr.UnknownTopicOrPartition without one.
	TopicID(ctx context.Context, topic string) (string, error)
	// AvailableOffsets is Offsets of those partitions that can be asked at present.
	AvailableOffsets(ctx context.Context, topic string) (starts, ends map[int32]int64, err error)
	// Faults returns why topics, or partitions of them, take no record.
	Faults(ctx context.Context, topics ...string) ([]*transport.TopicFault, error)
	// ReadLast returns the newest record of every partition that has one.
	ReadLast(ctx context.Context, topic string) (list []transport.Scanned, away []int32, err error)
	// NewGroup makes a consumer group, which is not to be looked at on an error.
	NewGroup(ctx context.Context, gc transport.GroupConfig) (group, error)
	NewReader(topic string) deliver.Reader
	// NewProducer makes a producer of decide, for frames, which are compressed.
	NewProducer() (decide.Producer, error)
	// Failing returns why the last append is not durable yet; nil when it is, or when
	// nobody knows.
	Failing() error
}

// group is a transport.Group, or an embedded.Group.
type group interface {
	Subscriber() message.Subscriber
	Failed() <-chan struct{}
	Err() error
	Close() error
}

// clusterLogs are topics of a cluster.
type clusterLogs struct {
	*transport.Admin
	transport.Appender
	cfg     *config.Config
	cluster transport.Config
}

func (l clusterLogs) Ensure(ctx context.Context, topics []transport.TopicSpec) error {
	return l.EnsureTopics(ctx, topics)
}

func (l clusterLogs) NewGroup(ctx context.Context, gc transport.GroupConfig) (group, error) {
	return transport.NewGroup(ctx, l.cluster, gc)
}

func (l clusterLogs) NewReader(topic string) deliver.Reader {
	return transport.NewReader(l.cluster, topic, 0)
}

func (l clusterLogs) NewProducer() (decide.Producer, error) {
	return assemble.Producer(l.cfg, l.cluster, kgo.NoCompression())
}

func (clusterLogs) Failing() error { return nil }

// fileLogs are tables of the file that has the state.
type fileLogs struct{ *embedded.Logs }

func (l fileLogs) Ensure(ctx context.Context, topics []transport.TopicSpec) error {
	for _, t := range topics {
		if err := l.Logs.Ensure(ctx, t.Name, t.Partitions, t.Grow); err != nil {
			return err
		}
	}
	return nil
}

func (l fileLogs) NewGroup(ctx context.Context, gc transport.GroupConfig) (group, error) {
	return l.Logs.NewGroup(ctx, gc)
}

// AvailableOffsets is Offsets: the file is there, or nothing is.
func (l fileLogs) AvailableOffsets(ctx context.Context, topic string) (starts, ends map[int32]int64, err error) {
	return l.Offsets(ctx, topic)
}

// Faults finds none: what is wrong with the file is that of the store.
func (fileLogs) Faults(context.Context, ...string) ([]*transport.TopicFault, error) { return nil, nil }

func (l fileLogs) NewReader(topic string) deliver.Reader { return l.Logs.NewReader(topic) }

func (l fileLogs) NewProducer() (decide.Producer, error) { return l.Logs, nil }

// openLogs opens the inbox and the changes log; the store is open.
func (p *process) openLogs() error {
	if file, ok := p.store.(*sqlite.Store); ok && p.cfg.Kafka.Embedded() {
		l, err := embedded.Open(file, p.cfg.Store.SQLite.Path, p.log)
		if err != nil {
			return err
		}
		p.logs = fileLogs{l}
		p.closers = append(p.closers, l.Release)
		// The file is this process's now: what leads to an earlier one is stale.
		return control.RemoveStale(p.cfg)
	}
	cluster, _, err := assemble.Cluster(p.cfg, p.cfg.Kafka.Cluster, p.log)
	if err != nil {
		return err
	}
	admin, err := transport.NewAdmin(cluster)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, func() error { admin.Close(); return nil })
	producer, err := assemble.Producer(p.cfg, cluster, kgo.SnappyCompression())
	if err != nil {
		return err
	}
	p.logs = clusterLogs{admin, producer, p.cfg, cluster}
	p.closers = append(p.closers, func() error { // its callers have ended
		ctx, cancel := context.WithTimeout(p.end.closing(), p.closeTimeout())
		defer cancel()
		if err := producer.Close(ctx); err != nil {
			// Nothing is lost by it: whatever Kafka did not acknowledge was not
			// acknowledged to its origin either, and is redelivered.
			p.log.Warn("Kafka did not answer during the shutdown: some records are redelivered", "error", err)
		}
		return nil
	})
	return nil
}

// keepChanges lets decisions write their frames into the changes log, where that is
// in the file that they write to. It is there.
func (p *process) keepChanges(ctx context.Context) error {
	if l, ok := p.logs.(fileLogs); ok {
		return l.KeepChanges(ctx, p.cfg.Kafka.Changes.Topic)
	}
	return nil
}

// trimEvery is how often an embedded process looks for records that are over their
// time.
const trimEvery = time.Minute

// trim deletes what is over its time from logs in the file, until ctx ends. What is
// not decided stays in the inbox.
func (g *generations) trim(ctx context.Context) {
	l, ok := g.logs.(fileLogs)
	if !ok {
		return
	}
	for wait.Sleep(ctx, trimEvery) {
		if err := g.trimLogs(ctx, l, time.Now()); err != nil && ctx.Err() == nil {
			g.log.Warn("records that are over their time stay until the next time", "error", err)
		}
	}
}

func (g *generations) trimLogs(ctx context.Context, l fileLogs, now time.Time) error {
	k := g.Config().Kafka
	marks, err := g.store.Watermarks(ctx)
	if err != nil {
		return err
	}
	decided := make(map[int32]int64, k.Inbox.Partitions)
	for part, next := range marks {
		if part.Generation == g.now().Generation {
			decided[part.Number] = next
		}
	}
	err = l.Trim(ctx, k.Inbox.Topic, now.Add(-k.Inbox.Retention.D()), decided)
	return errors.Join(err, l.Trim(ctx, k.Changes.Topic, now.Add(-k.Changes.Retention.D()), nil))
}
