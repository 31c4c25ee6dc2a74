package edge

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/transport"
)

// saramaConfig gives what subscriber and publisher have in common. Each takes
// a config of its own: the publisher's idempotence settings would slow the
// subscriber down.
func saramaConfig(cfg transport.Config) (*sarama.Config, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers configured")
	}
	c := sarama.NewConfig()
	c.ClientID = cfg.ClientID
	if c.ClientID == "" {
		c.ClientID = "weir"
	}
	c.Metadata.Retry.Backoff = 250 * time.Millisecond
	// A topic that is missing is a fault to tell of, and one that was deleted must
	// not come back with the broker's idea of partitions because somebody asked.
	c.Metadata.AllowAutoTopicCreation = false
	if cfg.TLS != nil {
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = cfg.TLS.Clone()
	}
	if cfg.SASL.Mechanism == "" {
		return c, nil
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.User = cfg.SASL.User
	c.Net.SASL.Password = cfg.SASL.Password
	switch cfg.SASL.Mechanism {
	case "plain":
		c.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	case "scram-sha-256":
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return newScram256() }
	case "scram-sha-512":
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return newScram512() }
	default:
		return nil, fmt.Errorf("kafka: unknown SASL mechanism %q (plain, scram-sha-256, scram-sha-512)", cfg.SASL.Mechanism)
	}
	return c, nil
}

// murmur2 partitions as every other Kafka client does, so that a key's records
// meet those of other producers.
type murmur2 struct{ of kgo.TopicPartitioner }

func newMurmur2(topic string) sarama.Partitioner {
	return murmur2{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

func (p murmur2) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	r := kgo.Record{Topic: m.Topic}
	if m.Key != nil {
		key, err := m.Key.Encode()
		if err != nil {
			return 0, err
		}
		r.Key = key
	}
	return int32(p.of.Partition(&r, int(n))), nil
}

func (murmur2) RequiresConsistency() bool { return true }
