// Package kafka is the source of a Kafka topic. It is read through package
// transport, or, with one message in flight, through watermill-kafka.
package kafka

import (
	"cmp"
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/watermillkafka"
	"github.com/seed-86dfc502/weir/sources"
)

// Config reads a topic, from its oldest record on.
type Config struct {
	// Cluster is where the topic is, if not in the cluster of the main kafka key.
	config.Cluster `yaml:",inline"`
	// Topic is the topic's name.
	Topic string `yaml:"topic" required:"true"`
	// FrameRecords is the most records of one frame: of a partition, one frame is in work.
	FrameRecords int `yaml:"frame_records" default:"1000" range:"1..100000"`
	// Group is the consumer group. Defaults to <kafka.prefix>.source.<name>, followed by the
	// inbox's id where the inbox is in the state file, or by the store's id where the source
	// has brokers of its own.
	Group string `yaml:"group"`

	derived bool // Group is the default
}

// Kind implements config.SourceConfig.
func (*Config) Kind() string { return "kafka" }

// ApplyDefaults implements config.SourceDefaults.
func (c *Config) ApplyDefaults(s *config.Source, all *config.Config) {
	c.derived = c.Group == ""
	c.Group = cmp.Or(c.Group, all.Kafka.Prefix+".source."+s.Name)
}

// CheckLocators implements config.SourceConfig: a record has key and headers.
func (*Config) CheckLocators(*config.Checker, *config.Source) {}

// Check implements config.SourceConfig.
func (c *Config) Check(check *config.Checker, _ *config.Source) {
	check.Cluster(&c.Cluster)
	check.Topic("topic", c.Topic)
	if first, taken := check.Claim("reader "+config.TopicTarget(&c.Cluster, &config.Cluster{}, c.Topic)+" "+c.Group, "topic"); taken && c.Topic != "" {
		check.Fault("topic", "is read by "+first+" in the same group", "a group of its own")
	}
	check.PlainCluster(&c.Cluster)
}

// Reads implements config.SourceConfig.
func (c *Config) Reads(main *config.Cluster) string {
	return config.TopicTarget(&c.Cluster, main, c.Topic)
}

// ReadsTopic implements config.TopicReader.
func (c *Config) ReadsTopic() string { return c.Topic }

// ClientTLS implements config.Secured.
func (c *Config) ClientTLS() *config.TLS { return c.TLS }

// groupOf returns the group to read in. A broker's offsets describe the content of an inbox: they
// are valid for a state file only until it is replaced or restored. On other brokers than the
// inbox's, kafka.prefix does not identify the pipeline.
func (c *Config) groupOf(e sources.Env) string {
	switch {
	case !c.derived:
		return c.Group
	case e.State != "":
		return c.Group + "." + e.State
	case len(c.Brokers) > 0:
		return c.Group + "." + e.StoreID
	}
	return c.Group
}

// Open implements sources.Kind.
func (c *Config) Open(ctx context.Context, e sources.Env) (sources.Source, error) {
	cluster, err := e.Cluster(c.Cluster)
	if err != nil {
		return nil, err
	}
	gc := e.Group(c.groupOf(e), c.FrameRecords, c.Topic)
	if c.FrameRecords == 1 {
		sub, err := watermillkafka.NewSubscriber(ctx, cluster, gc)
		if err != nil {
			return nil, err
		}
		return single{sub, &lag{topic: c.Topic, log: e.Logger, ask: sub.Lag}}, nil
	}
	g, err := transport.NewGroup(ctx, cluster, gc)
	if err != nil {
		return nil, err
	}
	return windowed{g.Subscriber(), &lag{topic: c.Topic, log: e.Logger, ask: g.Lag}, g}, nil
}

// windowed has frames in flight.
type windowed struct {
	message.Subscriber
	*lag
	group *transport.Group
}

// Close implements sources.Source.
func (w windowed) Close() error { return w.group.Close() }

// Drained implements sources.Source.
func (w windowed) Drained(ctx context.Context) (bool, error) {
	n, err := w.Pending(ctx)
	held, _ := w.Held()
	return n == 0 && held == 0, err
}

// single has one message of a partition in flight.
type single struct {
	*watermillkafka.Subscriber
	*lag
}

// Drained implements sources.Source.
func (s single) Drained(ctx context.Context) (bool, error) {
	if _, err := s.Pending(ctx); err != nil {
		return false, err
	}
	return s.Subscriber.Drained(ctx)
}

// Rights implements reach.Authorizer.
func (c *Config) Rights(string, string) (config.Cluster, []reach.Permission) {
	return c.Cluster, []reach.Permission{{Topic: c.Topic, Operation: "READ", Without: "nothing of it is taken in", Vital: true}}
}

// Ask implements reach.Target.
func (c *Config) Ask(ctx context.Context, cluster func(config.Cluster) (transport.Config, error)) error {
	of, err := cluster(c.Cluster)
	if err != nil {
		return err
	}
	return reach.Topic(ctx, of, c.Topic, false)
}
