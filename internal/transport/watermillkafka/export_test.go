package watermillkafka

import (
	"github.com/IBM/sarama"
	"github.com/seed-86dfc502/weir/internal/transport"
)

// Connect connects as a subscriber does.
func Connect(cfg transport.Config) (sarama.Client, error) {
	return sarama.NewClient(cfg.Brokers, saramaConfig(cfg, transport.GroupConfig{}))
}
