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

// A batch fails while the next of its sequence is handed in and waits for the round to
// end. The mistake that this catches: the next round begins without a look at it. What is
// of another sequence is appended.
func TestARoundLooksAtFailuresOfTheOneBefore(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	c := faulty(t, func(n int) int16 {
		if n > 1 {
			return 0
		}
		close(arrived)
		<-release
		return kerr.InvalidRecord.Code
	})
	p := c.producer(t, tiny)
	var sequence, other transport.Sequence
	answers := [3]chan error{make(chan error, 1), make(chan error, 1), make(chan error, 1)}
	p.AppendAsync(t.Context(), &sequence, []transport.Record{numbered("log", 7)}, func(err error) { answers[0] <- err })
	<-arrived
	p.AppendAsync(t.Context(), &sequence, []transport.Record{numbered("log", 8)}, func(err error) { answers[1] <- err })
	p.AppendAsync(t.Context(), &other, []transport.Record{numbered("log", 0)}, func(err error) { answers[2] <- err })
	close(release)
	require.ErrorIs(t, <-answers[0], kerr.InvalidRecord)
	require.ErrorIs(t, <-answers[1], transport.ErrBroken)
	require.NoError(t, <-answers[2])
	require.Equal(t, upTo(1), logged(t, c))
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
