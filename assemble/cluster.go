package assemble

import (
	"log/slog"
	"strconv"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster says how a cluster is reached, the main one when of has no brokers, and returns
// an identity as config.TLS does.
func Cluster(c *config.Config, of config.Cluster, log *slog.Logger) (cluster transport.Config, tlsIdentity string, err error) {
	if len(of.Brokers) == 0 {
		of = c.Kafka.Cluster
	}
	cluster = transport.Config{Brokers: of.Brokers, Logger: log}
	if of.SASL != nil {
		cluster.SASL = transport.SASL{Mechanism: of.SASL.Mechanism, User: of.SASL.Username, Password: of.SASL.Password.Reveal()}
	}
	cluster.TLS, tlsIdentity, err = of.TLS.Client()
	return cluster, tlsIdentity, err
}

// MaxRecord returns the size of the largest record of the internal topics, in bytes: the largest
// event, change or frame of changes, with its key and headers.
func MaxRecord(c *config.Config) int {
	n := max(decide.MaxFrame, int(c.Limits.Change))
	for i := range c.Sources {
		n = max(n, int(c.Sources[i].MaxEvent))
	}
	return n + recordOverhead
}

// Producer makes a producer of the internal topics.
func Producer(c *config.Config, cluster transport.Config, codec kgo.CompressionCodec) (*transport.Producer, error) {
	// Adding partitions to the inbox must not move entities.
	fixed := map[string]int{c.Kafka.Inbox.Topic: c.Kafka.Inbox.Partitions}
	return transport.NewProducer(cluster, transport.ProducerConfig{MaxRecordBytes: MaxRecord(c), Partitions: fixed, Compression: codec})
}

// Topics are the inbox and, in a cluster, the journal of a configuration.
func Topics(c *config.Config) []transport.TopicSpec {
	k := c.Kafka
	topic := func(name string, partitions int, retention string) transport.TopicSpec {
		return transport.TopicSpec{
			Name: name, Partitions: int32(partitions), Replication: int16(k.Replication),
			Configs: map[string]string{
				"retention.ms": retention, "max.message.bytes": strconv.Itoa(MaxRecord(c) + recordOverhead), "cleanup.policy": "delete",
			},
		}
	}
	topics := []transport.TopicSpec{topic(k.Inbox.Topic, k.Inbox.Partitions, strconv.FormatInt(k.Inbox.Retention.D().Milliseconds(), 10))}
	if name := c.Kafka.Journal(); name != "" {
		journal := topic(name, 1, "-1")
		journal.Configs["retention.bytes"] = "-1"
		topics = append(topics, journal)
	}
	return topics
}
