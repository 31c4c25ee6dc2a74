package transport_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// A batch fails while the next of its sequence is handed in and waits for the round to
// end. The mistake that this catches: the next round begins without a look at it. Records
// of another sequence are appended.
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

// A pinned record goes to its partition, whichever key it has.
func TestPinnedRecordsGoWhereTheyArePinned(t *testing.T) {
	_, c := fakeBrokers(t, kfake.SeedTopics(4, "pinned"))
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

// The mistake that this catches: a round is handed to a client that sends already, because
// another partition takes nothing. Its first record goes out alone and is refused while
// the rest is handed in, which kgo does not fail then. A topic that the client does not
// know yet is partitioned beside the round, once the client knows it.
func TestNothingIsAppendedBehindTheFirstOfARound(t *testing.T) {
	for name, known := range map[string]bool{"known topic": true, "unknown topic": false} {
		t.Run(name, func(t *testing.T) {
			broker, c := fakeBrokers(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "log", "other"))
			for partition := range int32(2) { // each has a broker of its own, and a request
				for _, topic := range []string{"log", "other"} {
					require.NoError(t, broker.MoveTopicPartition(topic, partition, partition))
				}
			}
			var refuses, away atomic.Bool
			flushing := make(chan struct{})
			flushes := sync.OnceFunc(func() { close(flushing) })
			refusing(broker, rawClient(t, c), func(partition int32) int16 {
				switch {
				case partition == 1 && away.Load():
					flushes()
					return kerr.NotLeaderForPartition.Code
				case partition == 0 && refuses.CompareAndSwap(true, false):
					return kerr.InvalidRecord.Code
				}
				return 0
			})
			p := c.producer(t, transport.ProducerConfig{})
			pin := func(topic string, partition int32, text string) transport.Record {
				return transport.Record{Topic: topic, Value: []byte(text), Pinned: true, Partition: partition}
			}
			before := []transport.Record{pin("other", 0, ""), pin("other", 1, "")}
			var want []string
			if known {
				before, want = append(before, pin("log", 0, "before")), []string{"before"}
			}
			require.NoError(t, p.Append(t.Context(), before))
			away.Store(true)
			stuck := make(chan error, 1)
			go func() {
				stuck <- p.Append(context.Background(), []transport.Record{{Topic: "other", Pinned: true, Partition: 1}})
			}()
			<-flushing
			refuses.Store(true)
			round := make([]transport.Record, 50_000)
			for i := range round {
				round[i] = pin("log", 0, strconv.Itoa(i))
			}
			require.ErrorIs(t, p.Append(t.Context(), round), kerr.InvalidRecord)
			away.Store(false)
			require.NoError(t, <-stuck)
			require.Equal(t, want, held(t, c, "log", 0))
		})
	}
}
