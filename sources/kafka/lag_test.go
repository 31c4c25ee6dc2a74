package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A transaction that stays open is worth one warning, after a minute.
func TestOpenTransactionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		held := int64(0)
		l := &lag{topic: "orders", log: slog.New(slog.NewTextHandler(&log, nil)), ask: func(context.Context) ([]transport.PartitionLag, error) {
			return []transport.PartitionLag{{Committed: 5, End: 5, Newest: 5 + held}}, nil
		}}
		said := func(event string) int {
			n, err := l.Pending(t.Context())
			require.NoError(t, err)
			require.Zero(t, n)
			return strings.Count(log.String(), "event="+event)
		}
		for range 2 {
			log.Reset()
			held = 7
			require.Zero(t, said("source.open_transaction"))
			began := time.Now()
			records, since := l.Held()
			require.EqualValues(t, 7, records)
			require.Equal(t, began, since)
			<-time.After(heldTooLong - time.Second)
			require.Zero(t, said("source.open_transaction"))
			<-time.After(time.Second)
			require.Equal(t, 1, said("source.open_transaction"))
			<-time.After(time.Hour)
			require.Equal(t, 1, said("source.open_transaction"))
			held = 0
			require.Equal(t, 1, said("source.transaction_ended"))
		}
	})
}

// A topic that brokers say cannot be read is a fault of the source once an election
// would be over; brokers that do not answer say nothing of it.
func TestATopicThatCannotBeReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer error
		l := &lag{topic: "orders", ask: func(context.Context) ([]transport.PartitionLag, error) {
			if answer != nil {
				return nil, answer
			}
			return []transport.PartitionLag{{Committed: 3, End: 5}, {Committed: 7, End: 8}}, nil
		}}
		looks := func(err error) {
			answer = err
			_, got := l.Pending(t.Context())
			require.ErrorIs(t, got, err)
		}
		gone := fmt.Errorf("lag: %w: %s", kerr.UnknownTopicOrPartition, strings.Repeat("no\n", 1000))

		n, err := l.Pending(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		looks(gone)
		<-time.After(patience - time.Second)
		looks(gone)
		require.NoError(t, l.Failing())
		<-time.After(time.Second)
		require.ErrorIs(t, l.Failing(), gone)
		require.LessOrEqual(t, len(l.Failing().Error()), 200, "the broker's words are bounded")
		looks(errors.New("connection refused"))
		require.ErrorIs(t, l.Failing(), gone)
		looks(nil)
		require.NoError(t, l.Failing())

		looks(errors.New("connection refused"))
		<-time.After(2 * patience)
		looks(errors.New("connection refused"))
		require.NoError(t, l.Failing())
		looks(gone)
		require.NoError(t, l.Failing(), "it was there when it was looked at last")
	})
}
