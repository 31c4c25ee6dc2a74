package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
)

// I9: a letter that dies again while old ones are pruned stays. The mistake that this
// catches: the statement waits for the update of a row, and deletes its earlier choice.
func TestALetterThatDiesAgainIsNotPruned(t *testing.T) {
	for _, stage := range []store.Stage{store.StageDecide, store.StageDeliver} { // each has a statement
		t.Run(string(stage), func(t *testing.T) {
			s, _ := migrated(t)
			ctx := t.Context()
			letter := store.DeadLetter{Stage: stage, Code: "refused", DedupKey: "k", Position: 1}
			require.NoError(t, s.AddLetters(ctx, []store.DeadLetter{letter}))
			_, err := s.pool.Exec(ctx, `UPDATE dead_letters SET last_at = now() - interval '1 day'`)
			require.NoError(t, err)

			again, err := s.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = again.Rollback(ctx) }()
			var pid int32
			require.NoError(t, again.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid))
			letter.Position = 2
			b := new(pgx.Batch)
			queueCalls(b, shared.Letters([]store.DeadLetter{letter}), nil)
			require.NoError(t, again.SendBatch(ctx, b).Close())
			pruned := make(chan int, 1)
			go func() {
				n, err := s.Prune(ctx, time.Now().Add(-time.Hour), time.Time{})
				assert.NoError(t, err)
				pruned <- n
			}()
			behind(t, s, pid)
			require.NoError(t, again.Commit(ctx))
			assert.Zero(t, <-pruned)
			left, err := s.ListLetters(ctx, store.LetterFilter{})
			require.NoError(t, err)
			require.Len(t, left, 1)
			assert.EqualValues(t, 2, left[0].Count)
		})
	}
}
