package edge

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/seed-86dfc502/weir/transport"
)

// saramaConfig gives how brokers are reached.
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

func logger(cfg transport.Config) *slog.Logger {
	if cfg.Logger == nil {
		return slog.Default()
	}
	return cfg.Logger
}
