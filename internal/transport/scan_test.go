package transport_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/internal/transport"
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
