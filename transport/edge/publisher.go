package edge

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/transport"
)

// NewPublisher connects and gives a publisher that is idempotent, with all
// acknowledgements. It sends the messages of one Publish one by one, each in a
// request that it shares with other calls at the same time: publish
// concurrently. A message that fails after its retries is an error of Publish;
// those behind it in the call were not sent. Keys are partitioned as by other
// Kafka clients (murmur2).
func NewPublisher(cfg transport.Config) (message.Publisher, error) {
	c, err := saramaConfig(cfg)
	if err != nil {
		return nil, err
	}
	// Idempotence needs all three.
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1

	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 10
	c.Producer.Retry.Backoff = 250 * time.Millisecond
	c.Producer.Partitioner = newMurmur2
	p, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers:               cfg.Brokers,
		Marshaler:             marshaler{},
		OverwriteSaramaConfig: c,
	}, transport.NewWatermillLogger(logger(cfg)))
	if err != nil {
		return nil, fmt.Errorf("kafka publisher: %w", err)
	}
	return p, nil
}

func logger(cfg transport.Config) *slog.Logger {
	if cfg.Logger == nil {
		return slog.Default()
	}
	return cfg.Logger
}
