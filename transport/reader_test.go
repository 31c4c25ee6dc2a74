package transport_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/transport"
)

func (c cluster) reader(t testing.TB, topic string, bytes int) *transport.Reader {
	t.Helper()
	r := transport.NewReader(c.cfg, topic, bytes)
	t.Cleanup(r.Close)
	return r
}

// read reads once, which must bring something, in the order of the log.
func read(t testing.TB, r *transport.Reader, partition int32, offset int64) []transport.Received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records, err := r.Read(ctx, partition, offset)
	require.NoError(t, err)
	require.NotEmpty(t, records)
	require.GreaterOrEqual(t, records[0].Offset, offset)
	for i := 1; i < len(records); i++ {
		require.Greater(t, records[i].Offset, records[i-1].Offset)
	}
	return records
}

// nothing reads once for long enough that the cluster answers, which must bring nothing.
func nothing(t testing.TB, r *transport.Reader, partition int32, offset int64) {
	t.Helper()
	for within := 300 * time.Millisecond; ; within *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		records, err := r.Read(ctx, partition, offset)
		cancel()
		require.Empty(t, records)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		require.Less(t, within, patience, "%v", err)
	}
}

// pinned appends records "from", "from+1", … of some size to a partition, each in
// a batch of its own.
func pinned(t testing.TB, p *transport.Producer, topic string, partition int32, from, n, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range n {
		value := append(fmt.Append(nil, from+i, " "), make([]byte, size)...)
		require.NoError(t, p.Append(ctx, []transport.Record{{Topic: topic, Value: value, Pinned: true, Partition: partition}}))
	}
}

// number returns what pinned numbered a record with.
func number(t testing.TB, r transport.Received) (n int64) {
	t.Helper()
	_, err := fmt.Sscan(string(r.Value[:min(len(r.Value), 20)]), &n)
	require.NoError(t, err)
	return n
}

// It returns the record of the wanted offset first, and leaves
// none out: reading on, jumping back and forth, another partition, waiting.
func TestReader(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "read", 2)
		p := c.producer(t, transport.ProducerConfig{})
		const n, size = 120, 10_000
		for partition := range int32(2) {
			pinned(t, p, topic, partition, 0, n, size)
		}
		r := c.reader(t, topic, 50_000)
		for partition := range int32(2) {
			for offset := int64(0); offset < n; {
				records := read(t, r, partition, offset)
				bytes := 0
				for _, rec := range records {
					require.Equal(t, offset, rec.Offset)
					require.Equal(t, offset, number(t, rec))
					require.True(t, rec.Redelivered)
					offset++
					bytes += len(rec.Value)
				}
				require.LessOrEqual(t, bytes, 50_000)
			}
			nothing(t, r, partition, n)
		}
		for _, offset := range []int64{7, 8, 100, 3, 119, 0, 60, 61, 63, 70} {
			for partition := range int32(2) {
				records := read(t, r, partition, offset)
				require.Equal(t, offset, records[0].Offset)
				require.Equal(t, offset, number(t, records[0]))
				again := read(t, r, partition, offset)
				require.Equal(t, offset, again[0].Offset)
			}
		}
		// It waits where there is nothing yet, and is woken.
		got := make(chan []transport.Received, 1)
		failed := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			records, err := r.Read(ctx, 1, n)
			got <- records
			failed <- err
		}()
		pinned(t, p, topic, 1, n, 1, size)
		records := <-got
		require.NoError(t, <-failed)
		require.Len(t, records, 1)
		require.EqualValues(t, n, number(t, records[0]))
		nothing(t, r, 1, n+1)
		require.EqualValues(t, 5, number(t, read(t, r, 1, 5)[0]), "from where it waited")

		pinned(t, p, topic, 0, n, 1, 200_000)
		require.Len(t, read(t, r, 0, n), 1, "larger than the bound, so alone")
		r.Close()
		require.EqualValues(t, 5, number(t, read(t, r, 0, 5)[0]), "it begins anew")
	})
}

// What retention took away is passed over, to the oldest record, also while it is
// being read, and it waits for the end of a re-created log.
func TestReaderOfWhatIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "gone", 1)
		p := c.producer(t, transport.ProducerConfig{})
		const n = 60
		pinned(t, p, topic, 0, 0, n, 10_000)
		adm := kadm.NewClient(rawClient(t, c))
		truncate := func(to int64) {
			_, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: to}}})
			require.NoError(t, err)
		}
		r := c.reader(t, topic, 20_000)
		next := read(t, r, 0, 0)[0].Offset + 1
		truncate(50)
		for next < n { // a part of it was fetched ahead
			records := read(t, r, 0, next)
			require.True(t, records[0].Offset == next || records[0].Offset == 50 && next < 50, "%d instead of %d", records[0].Offset, next)
			next = records[len(records)-1].Offset + 1
		}
		require.EqualValues(t, 50, read(t, r, 0, 3)[0].Offset, "in the same session")
		require.EqualValues(t, 50, read(t, c.reader(t, topic, 0), 0, 3)[0].Offset)
		nothing(t, r, 0, n+5)
		require.EqualValues(t, 55, number(t, read(t, r, 0, 55)[0]), "from behind the end")
	})
}

// Of a transaction that was aborted nothing is returned, and markers are no records.
func TestReaderReadsWhatIsCommitted(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "transactions", 1)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.cfg.Brokers...), kgo.TransactionalID(c.prefix+"transactional"))
		require.NoError(t, err)
		defer cl.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for i, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			require.NoError(t, cl.BeginTransaction())
			require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}).FirstErr())
			require.NoError(t, cl.EndTransaction(ctx, commit))
		}
		r := c.reader(t, topic, 0)
		var got []string
		for next := int64(0); len(got) < 2; {
			for _, rec := range read(t, r, 0, next) {
				got = append(got, string(rec.Value))
				next = rec.Offset + 1
			}
		}
		require.Equal(t, []string{"0", "2"}, got)
		nothing(t, r, 0, 5) // a marker
	})
}

// Who cannot be reached, or does not exist, is not a log that ends.
func TestReaderSaysWhatIsWrong(t *testing.T) {
	c := fakeCluster(t)
	for name, r := range map[string]*transport.Reader{
		"no such topic": c.reader(t, "none", 0),
		"no server":     transport.NewReader(transport.Config{Brokers: []string{harness.FreeAddress(t)}, Logger: quietLog()}, "topic", 0),
		"no brokers":    transport.NewReader(transport.Config{}, "topic", 0),
	} {
		// It tries until it is told to stop: long enough for one answer.
		for within := 100 * time.Millisecond; ; within *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := r.Read(ctx, 0, 0)
			cancel()
			require.Error(t, err, name)
			if !errors.Is(err, context.DeadlineExceeded) {
				break
			}
			require.Less(t, within, patience, "%s: %v", name, err)
		}
		r.Close()
	}
}
