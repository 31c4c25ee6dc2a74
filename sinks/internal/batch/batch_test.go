package batch

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// The rows to blame fail, and no other, for any rows and any limit of one statement; the rows of an entity keep their order.
func TestOnlyTheRowsToBlameFail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "rows")
		most := rapid.IntRange(1, 300).Draw(t, "what one statement may hold")
		class := rapid.SampledFrom([]sinks.Class{sinks.Reject, sinks.RetryBounded}).Draw(t, "class")
		bad := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, min(3, n-1), rapid.ID[int]).Draw(t, "bad")
		rows := make([]Row, n)
		for i := range rows {
			rows[i] = Row{Index: i, Change: &change.Change{Entity: rapid.StringMatching(`[a-z]{1,2}`).Draw(t, "entity"), Version: change.NewVersion(1, int64(i+1))}}
		}
		took := map[int]bool{}
		last := map[string]int{}
		w := Writer{Most: 1000, Ordered: true, Insert: func(_ context.Context, rows []Row) *sinks.Error {
			if len(rows) > most {
				return TooMuch(&sinks.Error{Class: sinks.Retry, Op: "insert", Err: errors.New("too large")})
			}
			for _, r := range rows {
				if slices.Contains(bad, r.Index) {
					return &sinks.Error{Class: class, Op: "insert", Err: errors.New("no")}
				}
			}
			for _, r := range rows {
				require.Greater(t, r.Index+1, last[r.Entity], "order")
				last[r.Entity] = r.Index + 1
				took[r.Index] = true
			}
			return nil
		}}
		require.NoError(t, w.Write(t.Context(), rows))
		for i, r := range rows {
			waits := class != sinks.Reject && slices.ContainsFunc(rows[:i], func(before Row) bool {
				return before.Entity == r.Entity && slices.Contains(bad, before.Index)
			})
			require.Equal(t, !slices.Contains(bad, i) && !waits, took[i], i)
			require.Equal(t, !took[i], w.failed[i] != nil, i)
			if waits {
				require.ErrorIs(t, w.failed[i], sinks.ErrNotAttempted)
			}
		}
	})
}

// A server that does nothing in time costs a few statements.
func TestAServerThatTakesNothing(t *testing.T) {
	statements := 0
	w := Writer{Most: 5000, Insert: func(context.Context, []Row) *sinks.Error {
		statements++
		return TooMuch(&sinks.Error{Class: sinks.RetryBounded, Op: "insert", Err: context.DeadlineExceeded})
	}}
	rows := make([]Row, 5000)
	for i := range rows {
		rows[i] = Row{Index: i, Change: &change.Change{}}
	}
	err := w.Write(t.Context(), rows)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, sinks.Retry, sinks.Classify(err).Class)
	require.LessOrEqual(t, statements, 4)
}

// The rows to blame are asked about one by one, so only some are.
func TestOnlySomeRowsAreBlamed(t *testing.T) {
	refusal, blamed := &sinks.Error{Class: sinks.Reject, Op: "insert", Err: errors.New("no")}, 0
	w := Writer{Most: 1000, Insert: func(context.Context, []Row) *sinks.Error { return refusal }, Blame: func(context.Context, Row, *sinks.Error) { blamed++ }}
	rows := make([]Row, 2*MaxBlamed)
	for i := range rows {
		rows[i] = Row{Index: i, Change: &change.Change{}}
	}
	require.NoError(t, w.Write(t.Context(), rows))
	require.Len(t, w.failed, len(rows))
	require.Equal(t, MaxBlamed, blamed)
}
