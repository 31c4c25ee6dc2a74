package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

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
		gone := fmt.Errorf("lag: %w", kerr.UnknownTopicOrPartition)

		n, err := l.Pending(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		looks(gone)
		<-time.After(patience - time.Second)
		looks(gone)
		require.NoError(t, l.Failing())
		<-time.After(time.Second)
		require.ErrorIs(t, l.Failing(), gone)
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
