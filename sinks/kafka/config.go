package kafka

import (
	"context"
	"errors"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Config appends one record per change to a topic, keyed by entity.
type Config struct {
	// Cluster is where the topic is, if not in the cluster of the main kafka key.
	config.Cluster `yaml:",inline"`
	// Topic is the topic's name.
	Topic string `yaml:"topic" required:"true"`
	// Tombstones sends a retraction as a null value, as compacted topics want it.
	Tombstones bool `yaml:"tombstones" default:"false"`
}

// Kind implements config.Sink.
func (*Config) Kind() string { return "kafka" }

// DeliveryMode implements config.Sink.
func (*Config) DeliveryMode() string { return config.KindLog }

// Check implements config.Sink.
func (c *Config) Check(check *config.Checker, _ *config.Delivery) {
	check.Cluster(&c.Cluster)
	check.Topic("topic", c.Topic)
	check.PlainCluster(&c.Cluster)
}

// Identity implements config.Sink.
func (c *Config) Identity(func(string) string) []any {
	return []any{c.SortedBrokers(), c.Topic, c.Tombstones}
}

// Target implements config.Sink.
func (c *Config) Target(main *config.Cluster) config.Target {
	return config.Target{Key: "topic", Name: config.TopicTarget(&c.Cluster, main, c.Topic)}
}

// ClientTLS implements config.Secured.
func (c *Config) ClientTLS() *config.TLS { return c.TLS }

// Make implements kind.Sink.
func (c *Config) Make(e kind.Env) (sinks.Sink, error) {
	share, err := c.Client(e)
	if err != nil {
		return nil, err
	}
	client, err := share.Client()
	if err != nil {
		return nil, errors.Join(err, share.Close())
	}
	sink, err := New(Options{
		Client: client, Try: share.Try, Release: share.Close, Topic: c.Topic, Service: e.Service, Pipeline: e.Pipeline, Tombstones: c.Tombstones,
		MaxMessageBytes: e.MaxMessage, Logger: e.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, share.Close())
	}
	return sink, nil
}

// WithoutSecrets implements kind.Sink.
func (*Config) WithoutSecrets() kind.Sink { return nil }

// Client returns a service's share in the client of a cluster. Two services have one
// only if they reach it in the same way, as the same user and under the same
// certificate.
func (c *Config) Client(e kind.Env) (*sinks.Lease[*fenced.Client], error) {
	cluster, identity, err := e.Cluster(c.Cluster)
	if err != nil {
		return nil, err
	}
	return sinks.Share(e.Targets, sinks.ClientConfig[*fenced.Client]{
		Key:  sinks.ClientKey("kafka", cluster.Brokers, cluster.SASL, identity),
		Open: func() (*fenced.Client, error) { return fenced.New(cluster) },
		Close: func(client *fenced.Client) error {
			client.Close()
			return nil
		},
	}), nil
}

// Ask implements reach.Target.
func (c *Config) Ask(ctx context.Context, cluster func(config.Cluster) (transport.Config, error)) error {
	of, err := cluster(c.Cluster)
	if err != nil {
		return err
	}
	return reach.Topic(ctx, of, c.Topic, false)
}

// Rights implements reach.Authorizer.
func (c *Config) Rights(pipeline, service string) (config.Cluster, []reach.Permission) {
	return c.Cluster, []reach.Permission{
		{Topic: c.Topic, Operation: "WRITE", Without: "nothing is delivered", Vital: true},
		{Topic: c.Topic, Operation: "READ", Without: "after a takeover what was written and not saved comes twice"},
		{Transactions: TransactionalID(pipeline, service, c.Topic, 0), Prefix: pipeline + ".", Operation: "WRITE", Without: "after a takeover what the process before had on its way may come twice", Remembered: fenced.Lifetime},
	}
}
