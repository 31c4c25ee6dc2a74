package transport_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/transport"
)

// A batch fails while the next is handed in and waits for the round to end. The
// mistake that this catches: the next round begins without a look at it, or after a
// reset that knew nothing of what was waiting.
func TestARoundLooksAtFailuresOfTheOneBefore(t *testing.T) {
	for name, reset := range map[string]bool{"broken": false, "reset": true} {
		t.Run(name, func(t *testing.T) {
			arrived, release := make(chan struct{}), make(chan struct{})
			c := faulty(t, func(n int) int16 {
				if n > 1 {
					return 0
				}
				close(arrived)
				<-release
				return kerr.InvalidRecord.Code
			})
			pc := tiny
			pc.Linger = -1
			p := c.producer(t, pc)
			first, second := make(chan error, 1), make(chan error, 1)
			p.AppendAsync(t.Context(), []transport.Record{numbered("log", 0)}, func(err error) {
				if reset {
					p.Reset()
				}
				first <- err
			})
			<-arrived
			p.AppendAsync(t.Context(), []transport.Record{numbered("log", 1)}, func(err error) { second <- err })
			close(release)
			require.ErrorIs(t, <-first, kerr.InvalidRecord)
			require.ErrorIs(t, <-second, transport.ErrBroken)
			require.Empty(t, logged(t, c))
		})
	}
}

// A pinned record goes to its partition whatever its key says.
func TestPinnedRecordsGoWhereTheyArePinned(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "pinned"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	c := cluster{cfg: transport.Config{Brokers: broker.ListenAddrs(), Logger: quietLog()}}
	p := c.producer(t, transport.ProducerConfig{})
	records := make([]transport.Record, 20)
	for i := range records {
		records[i] = transport.Record{Topic: "pinned", Key: []byte(strconv.Itoa(i)), Value: []byte("x"), Pinned: true, Partition: int32(i % 4)}
	}
	require.NoError(t, p.Append(t.Context(), records))
	cl := rawClient(t, c, kgo.ConsumeTopics("pinned"))
	for n := 0; n < len(records); {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			key, err := strconv.Atoi(string(r.Key))
			require.NoError(t, err)
			require.EqualValues(t, key%4, r.Partition)
			n++
		})
	}
}
