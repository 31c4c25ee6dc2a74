package transport_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// Settings that change in the configuration change in the topics that are there.
// The mistake that this catches: limits that are raised later end in
// MESSAGE_TOO_LARGE without end, and a retention that is changed has no effect.
func TestSettingsOfATopicAreAltered(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "topic", 1, "max.message.bytes", "2000", "retention.ms", "3600000", "cleanup.policy", "compact", "segment.bytes", "2000000")
		large := []transport.Record{{Topic: topic, Key: []byte("k"), Value: bytes.Repeat([]byte("x"), 5000)}}
		pc := transport.ProducerConfig{MaxRecordBytes: 10_000}
		var said bytes.Buffer
		cfg := c.cfg
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		a, err := transport.NewAdmin(cfg)
		require.NoError(t, err)
		defer a.Close()
		ensure := func(limit, retention string) {
			said.Reset()
			require.NoError(t, a.EnsureTopics(t.Context(), []transport.TopicSpec{{Name: topic, Partitions: 1, Configs: map[string]string{
				"max.message.bytes": limit, "retention.ms": retention, "cleanup.policy": "delete",
			}}}))
		}
		settings := func() map[string]string {
			found, err := kadm.NewClient(rawClient(t, c)).DescribeTopicConfigs(t.Context(), topic)
			require.NoError(t, err)
			have := map[string]string{}
			for _, s := range found[0].Configs {
				switch s.Key {
				case "max.message.bytes", "retention.ms", "cleanup.policy", "segment.bytes":
					have[s.Key] = s.MaybeValue()
				}
			}
			return have
		}
		require.Error(t, c.producer(t, pc).Append(t.Context(), large))
		ensure("10000", "7200000")
		producer := c.producer(t, pc)
		require.EventuallyWithT(t, func(check *assert.CollectT) { // brokers apply it a little later
			require.NoError(check, producer.Append(t.Context(), large))
		}, patience, 20*time.Millisecond)
		want := map[string]string{"max.message.bytes": "10000", "retention.ms": "7200000", "cleanup.policy": "delete", "segment.bytes": "2000000"}
		require.Equal(t, want, settings(), "what the configuration does not name stays")
		require.Contains(t, said.String(), "max.message.bytes from 2000 to 10000, retention.ms from 3600000 to 7200000")
		ensure("10000", "7200000")
		require.Empty(t, said.String(), "nothing differs")
		ensure("2000", "7200000")
		require.Empty(t, said.String(), "larger records may be in the topic")
	})
}

// Settings that cannot be altered are refused, with the remedy.
func TestSettingsThatCannotBeAlteredAreRefused(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 1, "retention.ms", "3600000")
	err := c.admin(t).EnsureTopics(t.Context(), []transport.TopicSpec{{Name: topic, Partitions: 1, Configs: map[string]string{"retention.ms": "no number"}}})
	require.ErrorIs(t, err, transport.ErrSettings)
	require.ErrorContains(t, err, "retention.ms from 3600000 to no number")
	require.ErrorContains(t, err, "--entity-name "+topic+" --add-config retention.ms=no number")
}
