package transport_test

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/transport"
)

// A scan ends when retention removes the rest of its range meanwhile, to the end.
func TestScanOfWhatIsRemovedMeanwhile(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "removed", 1)
	p, err := transport.NewProducer(c.cfg, transport.ProducerConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) }()
	const records = 48 // of 900 kB: several times what is fetched ahead
	value := make([]byte, 900_000)
	_, _ = rand.Read(value)
	for range records {
		require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: topic, Key: []byte("k"), Value: value}}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := 0
	require.NoError(t, c.admin(t).Scan(ctx, topic, map[int32]int64{0: 0}, map[int32]int64{0: records}, func(transport.Scanned) error {
		if seen++; seen == 1 {
			return c.remove(ctx, topic, records)
		}
		return nil
	}))
	require.Less(t, seen, records, "the scan was to meet the gap")
}

// remove deletes the first records of a topic's partition 0, as retention does.
func (c cluster) remove(ctx context.Context, topic string, records int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.cfg.Brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	all := kadm.Offsets{}
	all.AddOffset(topic, 0, records, -1)
	_, err = kadm.NewClient(cl).DeleteRecords(ctx, all)
	return err
}

// asked calls then after the answer to the second question for offsets, which is the
// one for the ends.
type asked struct {
	n    atomic.Int64
	then func()
}

func (a *asked) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil && key == int16(kmsg.ListOffsets) && a.n.Add(1) == 2 {
		a.then()
	}
}

// The newest records are looked for, and found to be none, though retention removes
// all that there is after the ends were asked for. The mistake that this catches: to
// wait for them without end.
func TestTheNewestRecordsAreRemovedMeanwhile(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "removed", 1)
		fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 10)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		hook := &asked{then: func() { assert.NoError(t, c.remove(ctx, topic, 10)) }}
		hooked := cluster{cfg: c.cfg.With(kgo.WithHooks(hook))}
		last, away, err := hooked.admin(t).ReadLast(ctx, topic)
		require.NoError(t, err)
		require.Empty(t, last)
		require.Empty(t, away)
		require.GreaterOrEqual(t, hook.n.Load(), int64(4), "it was to look again")
	})
}
