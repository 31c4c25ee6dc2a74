package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

var takeOverTests = []test{
	{"new partitions start at 0 in the order asked", func(t *testing.T, f *fixture) {
		p9 := store.Partition{Generation: 2, Number: 9}
		taken, _ := f.own(f.a, 'a', p9, p1, p0)
		assert.Equal(t, []store.TakenOver{{Partition: p9}, {Partition: p1}, {Partition: p0}}, taken)
		none, err := f.a.TakeOver(t.Context(), nil, store.Token{1})
		require.NoError(t, err)
		assert.Empty(t, none)
	}},
	{"the outbox comes in order, per partition, until it is deleted by id", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		move := func(p store.Partition, from int64) store.Move {
			return store.Move{Partition: p, From: from, To: from + 1, Token: token}
		}
		batch := func(p store.Partition, text string) store.OutboxBatch {
			return store.OutboxBatch{Partition: p, Changes: []byte(text)}
		}
		var ids []int64
		for i := range int64(3) {
			got, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{move(p1, i), move(p0, i)}},
				writes(store.Outcome{Outbox: []store.OutboxBatch{batch(p1, fmt.Sprint("one-", i)), batch(p0, fmt.Sprint("zero-", i)), batch(p1, fmt.Sprint("more-", i))}}))
			require.NoError(t, err)
			require.Len(t, got, 3)
			ids = append(ids, got...)
		}
		taken, token2 := f.own(f.b, 'b', p1, p0)
		assert.Equal(t, []string{"one-0", "more-0", "one-1", "more-1", "one-2", "more-2"}, texts(taken[0].Outbox))
		assert.Equal(t, []string{"zero-0", "zero-1", "zero-2"}, texts(taken[1].Outbox))
		assert.Equal(t, []int64{ids[0], ids[2], ids[3], ids[5], ids[6], ids[8]}, idsOf(taken[0].Outbox), "the ids that Decide gave, in their order")
		assert.IsIncreasing(t, idsOf(taken[0].Outbox))

		// Only rows of the moved partitions go, and only those named.
		_, err := f.b.Decide(t.Context(), store.Decision{Revision: revision,
			Moves: []store.Move{{Partition: p1, From: 3, To: 3, Token: token2}}, Published: []int64{ids[0], ids[1], ids[2], 1 << 40}}, writes(store.Outcome{}))
		require.NoError(t, err)
		taken, _ = f.own(f.a, 'c', p0, p1)
		assert.Equal(t, []string{"zero-0", "zero-1", "zero-2"}, texts(taken[0].Outbox))
		assert.Equal(t, []string{"one-1", "more-1", "one-2", "more-2"}, texts(taken[1].Outbox))
	}},
	{"Discard deletes under the same watermark check", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		ids, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: 0, To: 4, Token: token}}},
			writes(store.Outcome{Outbox: []store.OutboxBatch{{Partition: p0, Changes: []byte("1")}, {Partition: p0, Changes: []byte("2")}}}))
		require.NoError(t, err)
		stale := token
		_, token = f.own(f.b, 'b', p0)
		for _, bad := range []store.Move{{Partition: p0, From: 4, To: 4, Token: stale}, {Partition: p0, From: 3, To: 3, Token: token}} {
			require.ErrorIs(t, f.a.Discard(t.Context(), []store.Move{bad}, ids), store.ErrFenced)
		}
		good := []store.Move{{Partition: p0, From: 4, To: 4, Token: token}}
		require.NoError(t, f.b.Discard(t.Context(), good, nil))
		outboxes := func() map[store.Partition]int64 {
			rows, err := f.a.Outboxes(t.Context())
			require.NoError(t, err)
			return rows
		}
		assert.Equal(t, map[store.Partition]int64{p0: 2}, outboxes())
		require.NoError(t, f.b.Discard(t.Context(), good, ids[:1]))
		assert.Equal(t, map[store.Partition]int64{p0: 1}, outboxes())
		taken, token := f.own(f.a, 'c', p0)
		assert.Equal(t, []string{"2"}, texts(taken[0].Outbox))
		assert.Equal(t, int64(4), taken[0].NextOffset)
		good[0].Token = token
		require.NoError(t, f.b.Discard(t.Context(), good, ids[1:]))
		assert.Empty(t, outboxes())
	}},
	{"I5 during a decision: it is seen whole or fails", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		type result struct {
			taken []store.TakenOver
			err   error
		}
		result2 := make(chan result, 1)
		_, decided := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: 0, To: 4, Token: token}}},
			func(store.Loaded, store.Lookup) (store.Outcome, error) {
				go func() {
					taken, err := f.b.TakeOver(t.Context(), []store.Partition{p0}, store.Token{'b'})
					result2 <- result{taken, err}
				}()
				select { // one implementation lets it wait, another could let it pass and fence this decision
				case r := <-result2:
					result2 <- r
				case <-time.After(100 * time.Millisecond):
				}
				return store.Outcome{Outbox: []store.OutboxBatch{{Partition: p0, Changes: []byte("1")}}}, nil
			})
		r := <-result2
		require.NoError(t, r.err)
		if decided == nil {
			assert.Equal(t, int64(4), r.taken[0].NextOffset)
			assert.Equal(t, []string{"1"}, texts(r.taken[0].Outbox))
		} else {
			require.ErrorIs(t, decided, store.ErrFenced)
			assert.Equal(t, int64(0), r.taken[0].NextOffset)
			assert.Empty(t, r.taken[0].Outbox)
		}
		_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: r.taken[0].NextOffset, To: 9, Token: token}}}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced, "the old owner is out")
	}},
	{"I1 I5 owners that fight lose and repeat nothing", func(t *testing.T, f *fixture) {
		// Each owner decides offset after offset until it is fenced, then takes
		// over. Every offset must be in the outbox once and in order.
		revision := f.revision()
		const last = 60
		var owners sync.WaitGroup
		for n := range 4 {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			owners.Go(func() {
				for round := 0; ; round++ {
					token := store.Token{byte(n), byte(round), byte(round >> 8)}
					taken, err := s.TakeOver(t.Context(), []store.Partition{p0}, token)
					if err != nil {
						if store.ClassOf(err) == store.Retry {
							continue
						}
						assert.NoError(t, err)
						return
					}
					for next := taken[0].NextOffset; ; next++ {
						if next >= last {
							return
						}
						_, err := s.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.Move{{Partition: p0, From: next, To: next + 1, Token: token}}},
							writes(store.Outcome{Outbox: []store.OutboxBatch{{Partition: p0, Changes: []byte(fmt.Sprint(next))}}}))
						if errors.Is(err, store.ErrFenced) || err != nil && store.ClassOf(err) == store.Retry {
							break
						}
						if !assert.NoError(t, err) {
							return
						}
						if next%5 == int64(n) {
							break // and fight again
						}
					}
				}
			})
		}
		owners.Wait()
		taken, _ := f.own(f.a, 'z', p0)
		var want []string
		for i := range last {
			want = append(want, fmt.Sprint(i))
		}
		assert.Equal(t, want, texts(taken[0].Outbox))
	}},
}

func texts(batches []store.OutboxBatch) (all []string) {
	for _, b := range batches {
		all = append(all, string(b.Changes))
	}
	return all
}

func idsOf(batches []store.OutboxBatch) (all []int64) {
	for _, b := range batches {
		all = append(all, b.ID)
	}
	return all
}
