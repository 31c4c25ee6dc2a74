package assemble

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/transport"
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

// JournalTopic is the topic of the journal. It is "" where the logs are in the state's file, which
// has a note beside it instead.
func JournalTopic(c *config.Config) string {
	if c.Kafka.Embedded() {
		return ""
	}
	return c.Kafka.Prefix + ".journal"
}

// Topics are the inbox, the changes log and, in a cluster, the journal of a configuration.
// Partition p of the log holds the changes decided from inbox partition p.
func Topics(c *config.Config) []transport.TopicSpec {
	k := c.Kafka
	topic := func(name string, retention time.Duration) transport.TopicSpec {
		return transport.TopicSpec{
			Name: name, Partitions: int32(k.Inbox.Partitions), Replication: int16(k.Replication),
			Configs: map[string]string{
				"retention.ms":      strconv.FormatInt(retention.Milliseconds(), 10),
				"max.message.bytes": strconv.Itoa(MaxRecord(c) + recordOverhead),
				"cleanup.policy":    "delete",
			},
		}
	}
	inbox := topic(k.Inbox.Topic, k.Inbox.Retention.D())
	changes := topic(k.Changes.Topic, k.Changes.Retention.D())
	changes.Grow = true // the server may have created it automatically
	topics := []transport.TopicSpec{inbox, changes}
	if name := JournalTopic(c); name != "" {
		journal := topic(name, 0)
		journal.Partitions = 1
		journal.Configs["retention.ms"], journal.Configs["retention.bytes"] = "-1", "-1"
		topics = append(topics, journal)
	}
	return topics
}
