package watermillkafka

import (
	"context"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/seed-86dfc502/weir/internal/transport"
)

func saramaConfig(cfg transport.Config, gc transport.GroupConfig) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "weir"
	if cfg.TLS != nil {
		c.Net.TLS.Enable, c.Net.TLS.Config = true, cfg.TLS.Clone()
	}
	if cfg.SASL.Mechanism != "" {
		c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, cfg.SASL.User, cfg.SASL.Password
		c.Net.SASL.Mechanism = sarama.SASLMechanism(strings.ToUpper(cfg.SASL.Mechanism))
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: c.Net.SASL.Mechanism} }
	}
	c.Metadata.Retry.Backoff = 250 * time.Millisecond
	c.Metadata.RefreshFrequency = transport.MetadataMaxAge
	// A missing topic is reported, and a deleted one must not be created again with the
	// broker's default partitions by a request for it.
	c.Metadata.AllowAutoTopicCreation = false
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = true // commits acknowledged offsets; a commit per message is 100 times slower
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Return.Errors = true
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.MaxProcessingTime = time.Second
	c.Consumer.Group.Session.Timeout = gc.SessionTimeout
	c.Consumer.Group.Heartbeat.Interval = gc.HeartbeatInterval
	c.Consumer.Group.Rebalance.Timeout = gc.RebalanceTimeout
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	return c
}

// scramClient adapts kgo's SCRAM client for sarama.
type scramClient struct {
	mechanism sarama.SASLMechanism
	session   sasl.Session
	first     string // our first message, until sarama has it
	done      bool
}

// Begin implements sarama.SCRAMClient.
func (s *scramClient) Begin(user, password, authzID string) error {
	auth := scram.Auth{Zid: authzID, User: user, Pass: password}
	mechanism := auth.AsSha256Mechanism()
	if s.mechanism == sarama.SASLTypeSCRAMSHA512 {
		mechanism = auth.AsSha512Mechanism()
	}
	session, first, err := mechanism.Authenticate(context.Background(), "")
	s.session, s.first, s.done = session, string(first), false
	return err
}

// Step implements sarama.SCRAMClient.
func (s *scramClient) Step(challenge string) (answer string, err error) {
	if s.first != "" {
		answer, s.first = s.first, ""
		return answer, nil
	}
	done, next, err := s.session.Challenge([]byte(challenge))
	s.done = done
	return string(next), err
}

// Done implements sarama.SCRAMClient.
func (s *scramClient) Done() bool { return s.done }
