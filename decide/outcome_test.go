package decide

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// narrow is a store that does not take a decision of more than most bytes of
// documents, and answers as it is told.
type narrow struct {
	store.Decisions
	most      int
	says      error
	refused   atomic.Int64
	largest   atomic.Int64
	committed atomic.Int64
	inVain    atomic.Int64 // decisions whose outcome was too large
}

func (s *narrow) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	err := s.Decisions.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
		out, err := decide(loaded)
		if err != nil {
			s.inVain.Add(1)
			return out, err
		}
		size := 0
		for i := range out.Entities {
			size += len(out.Entities[i].Docs)
		}
		s.largest.Store(max(s.largest.Load(), int64(size)))
		if s.most > 0 && size > s.most {
			s.refused.Add(1)
			return out, s.says
		}
		return out, nil
	})
	if err == nil {
		s.committed.Add(1)
	}
	return err
}

// many is a batch of n entities with documents of some 450 bytes.
func many(t *testing.T, n int) []transport.Received {
	var records []transport.Received
	for i := range n {
		id := fmt.Sprint("B-", i, strings.Repeat("x", 400))
		records = append(records, event(t, id, int64(i), fmt.Sprintf(`{"id":%q,"ripeness_level":1}`, id)))
	}
	return records
}

func (w *flow) decides(t *testing.T, d *Decider, records []transport.Received) {
	select {
	case err := <-begin(t, d, 0, records...):
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.FailNow(t, "it is repeated for ever", d.Halted())
	}
	marks, err := w.store.Watermarks(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(records), marks[store.Partition{Generation: 1}])
	letters, err := w.store.ListLetters(t.Context(), store.LetterFilter{})
	require.NoError(t, err)
	require.Empty(t, letters)
	n, err := w.store.CountEntities(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(records), n)
}

// The outcome of events is bounded, not only their size. The mistake that this
// catches: a batch of many events for many services is more than a database takes
// in one statement.
func TestABatchIsCutWhereItsOutcomeIsTooLarge(t *testing.T) {
	w := newFlow(t)
	counted := &narrow{}
	w.wrap = func(s store.Decisions) store.Decisions { counted.Decisions = s; return counted }
	w.maxOutcome = 20_000
	d, _ := w.owner(t, nil)
	w.decides(t, d, many(t, 100))
	require.Less(t, counted.largest.Load(), int64(10_000), "documents are half of it at most")
	require.Less(t, counted.committed.Load(), int64(40), "no smaller than it must be")
	before := counted.inVain.Load()
	require.NoError(t, <-begin(t, d, 0, many(t, 500)[100:]...))
	require.Equal(t, before, counted.inVain.Load(), "the last outcomes tell how many records fit")
}

// A batch that fails repeatedly is halved, after any error of the store.
func TestABatchThatFailsAgainAndAgainIsHalved(t *testing.T) {
	for name, class := range map[string]store.Class{"retry": store.Retry, "fatal": store.Fatal, "unknown": store.Unknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFlow(t)
			refusing := &narrow{most: 5_000, says: store.WithClass(errors.New("invalid memory alloc request size"), class)}
			w.wrap = func(s store.Decisions) store.Decisions { refusing.Decisions = s; return refusing }
			d, _ := w.owner(t, nil)
			w.decides(t, d, many(t, 20))
			require.NotZero(t, refusing.refused.Load())
		})
	}
}
