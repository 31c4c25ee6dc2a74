package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

var takeOverTests = []test{
	{"new partitions start at 0 in the order asked", func(t *testing.T, f *fixture) {
		p9 := store.Partition{Generation: 1, Number: 9}
		taken, _ := f.own(f.a, 'a', p9, p1, p0)
		for i := range taken {
			taken[i].Doubt = false // see RunDoubt
		}
		assert.Equal(t, []store.TakenOver{{Partition: p9}, {Partition: p1}, {Partition: p0}}, taken)
		none, err := f.a.TakeOver(t.Context(), nil, store.Token{1})
		require.NoError(t, err)
		assert.Empty(t, none)
	}},
	{"the outbox comes in order, per partition, until it is deleted by id", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		move := func(p store.Partition, from int64) store.WatermarkStep {
			return store.WatermarkStep{Partition: p, From: from, To: from + 1, Token: token}
		}
		frame := func(p store.Partition, text string) store.OutboxFrame {
			return store.OutboxFrame{Partition: p, Frame: []byte(text)}
		}
		var ids []int64
		for i := range int64(3) {
			got, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{move(p1, i), move(p0, i)}},
				writes(store.Outcome{Outbox: []store.OutboxFrame{frame(p1, fmt.Sprint("one-", i)), frame(p0, fmt.Sprint("zero-", i)), frame(p1, fmt.Sprint("more-", i))}}))
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
			Moves: []store.WatermarkStep{{Partition: p1, From: 3, To: 3, Token: token2}}, Published: []int64{ids[0], ids[1], ids[2], 1 << 40}}, writes(store.Outcome{}))
		require.NoError(t, err)
		taken, _ = f.own(f.a, 'c', p0, p1)
		assert.Equal(t, []string{"zero-0", "zero-1", "zero-2"}, texts(taken[0].Outbox))
		assert.Equal(t, []string{"one-1", "more-1", "one-2", "more-2"}, texts(taken[1].Outbox))
	}},
	{"a decision about nothing deletes under the same watermark check", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		ids, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 4, Token: token}}},
			writes(store.Outcome{Outbox: []store.OutboxFrame{{Partition: p0, Frame: []byte("1")}, {Partition: p0, Frame: []byte("2")}}}))
		require.NoError(t, err)
		stale := token
		_, token = f.own(f.b, 'b', p0)
		for _, bad := range []store.WatermarkStep{{Partition: p0, From: 4, To: 4, Token: stale}, {Partition: p0, From: 3, To: 3, Token: token}} {
			require.ErrorIs(t, f.discard(revision, bad, ids...), store.ErrFenced)
		}
		good := store.WatermarkStep{Partition: p0, From: 4, To: 4, Token: token}
		require.ErrorIs(t, f.discard(revision+1, good, ids...), store.ErrSuperseded)
		require.NoError(t, f.discard(revision, good))
		outbox := func() [][]byte {
			frames, err := f.a.Outbox(t.Context(), p0.Number)
			require.NoError(t, err)
			return frames
		}
		assert.Len(t, outbox(), 2)
		require.NoError(t, f.discard(revision, good, ids[0]))
		require.NoError(t, f.discard(revision, good, ids[0]), "again does no harm")
		assert.Len(t, outbox(), 1)
		taken, token := f.own(f.a, 'c', p0)
		assert.Equal(t, []string{"2"}, texts(taken[0].Outbox))
		assert.Equal(t, int64(4), taken[0].NextOffset)
		good.Token = token
		require.NoError(t, f.discard(revision, good, ids[1]))
		assert.Empty(t, outbox())
	}},
	{"I5 during a decision: it is seen whole or fails", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		type result struct {
			taken []store.TakenOver
			err   error
		}
		result2 := make(chan result, 1)
		_, decided := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 4, Token: token}}},
			func(store.Loaded) (store.Outcome, error) {
				go func() {
					taken, err := f.b.TakeOver(t.Context(), []store.Partition{p0}, store.Token{'b'})
					result2 <- result{taken, err}
				}()
				select { // one implementation lets it wait, another could let it pass and fence this decision
				case r := <-result2:
					result2 <- r
				case <-time.After(100 * time.Millisecond):
				}
				return store.Outcome{Outbox: []store.OutboxFrame{{Partition: p0, Frame: []byte("1")}}}, nil
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
		_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: r.taken[0].NextOffset, To: 9, Token: token}}}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced, "the old owner is out")
	}},
	{"last_to is that of the newest frame, also of an older generation", func(t *testing.T, f *fixture) {
		revision := f.revision()
		gen := func(g uint16, n int32) store.Partition { return store.Partition{Generation: g, Number: n} }
		decide := func(token store.Token, p store.Partition, from, to int64, out store.Outcome) []int64 {
			ids, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p, From: from, To: to, Token: token}}}, writes(out))
			require.NoError(t, err)
			return ids
		}
		frame := func(p store.Partition, to int64) store.Outcome {
			return store.Outcome{Outbox: []store.OutboxFrame{{Partition: p, Frame: fmt.Append(nil, p.Generation, to)}},
				LastTo: map[store.Partition]change.Version{p: change.NewVersion(p.Generation, to)}}
		}
		taken, token := f.own(f.a, 'a', gen(1, 0), gen(1, 1))
		assert.Zero(t, taken[0].LastTo, "before the first frame")
		decide(token, gen(1, 0), 0, 5, frame(gen(1, 0), 5))
		decide(token, gen(1, 0), 5, 9, store.Outcome{})
		taken, token = f.own(f.b, 'b', gen(1, 1), gen(1, 0))
		assert.Equal(t, []change.Version{0, version(5)}, []change.Version{taken[0].LastTo, taken[1].LastTo}, "a decision without a frame keeps it")
		decide(token, gen(1, 0), 9, 12, frame(gen(1, 0), 12))

		taken, _ = f.own(f.a, 'c', gen(2, 1), gen(2, 0))
		assert.Equal(t, []change.Version{0, version(12)}, []change.Version{taken[0].LastTo, taken[1].LastTo})
		assert.Equal(t, []int64{0, 0}, []int64{taken[0].NextOffset, taken[1].NextOffset})
		assert.Equal(t, []string{"1 5", "1 12"}, texts(taken[1].Outbox), "what an older generation left")
		assert.Equal(t, gen(1, 0), taken[1].Outbox[0].Partition)
		left := idsOf(taken[1].Outbox)

		taken, token = f.own(f.b, 'd', gen(5, 0))
		assert.Equal(t, version(12), taken[0].LastTo, "over a generation without frames")
		decide(token, gen(5, 0), 0, 3, frame(gen(5, 0), 3))
		taken, token = f.own(f.b, 'e', gen(5, 0))
		assert.Equal(t, change.NewVersion(5, 3), taken[0].LastTo)
		assert.Equal(t, []string{"1 5", "1 12", "5 3"}, texts(taken[0].Outbox))
		require.NoError(t, f.discard(revision, store.WatermarkStep{Partition: gen(5, 0), From: 3, To: 3, Token: token}, left...))
		taken, token = f.own(f.b, 'f', gen(5, 0))
		assert.Equal(t, []string{"5 3"}, texts(taken[0].Outbox), "its owner deletes what older ones left")
		_, err := f.b.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: gen(5, 0), From: 3, To: 3, Token: token}},
			Published: idsOf(taken[0].Outbox)}, writes(store.Outcome{}))
		require.NoError(t, err)
		taken, _ = f.own(f.b, 'g', gen(6, 0))
		assert.Empty(t, taken[0].Outbox)
		assert.Equal(t, change.NewVersion(5, 3), taken[0].LastTo)
	}},
	{"I3 I5 a new generation ends all older ones, also of other partitions", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		next := store.Partition{Generation: 3, Number: 0}
		f.own(f.b, 'b', next)
		before := f.state(f.b)
		move := []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}
		_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: move}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced)
		for _, older := range []store.Partition{p0, {Generation: 2, Number: 0}} {
			_, err = f.a.TakeOver(t.Context(), []store.Partition{p1, older}, store.Token{'c'})
			require.ErrorIs(t, err, store.ErrFenced)
			assert.Equal(t, store.Fenced, store.ClassOf(err))
		}
		assert.Equal(t, before, f.state(f.b))
		move[0].Partition = p1 // whose entities may be in another one by now
		_, err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: move}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced)
		for _, older := range []store.Partition{p1, {Generation: 2, Number: 5}} {
			_, err = f.a.TakeOver(t.Context(), []store.Partition{older}, store.Token{'d'})
			require.ErrorIs(t, err, store.ErrFenced)
		}
		_, err = f.a.TakeOver(t.Context(), []store.Partition{p1, {Generation: 2, Number: 1}}, store.Token{'d'})
		assert.Equal(t, store.Fatal, store.ClassOf(err), "a number twice is a bug")
	}},
	{"I5 generations that are taken over at the same time", func(t *testing.T, f *fixture) {
		revision := f.revision()
		var owners sync.WaitGroup
		type result struct {
			token store.Token
			taken []store.TakenOver
		}
		results := make([]result, 6)
		for i := range results {
			s := turn(i, f.a, f.b)
			results[i].token = store.Token{byte(i + 1)}
			owners.Go(func() {
				var err error
				results[i].taken, err = s.TakeOver(t.Context(), []store.Partition{{Generation: uint16(i + 1)}}, results[i].token)
				if err != nil {
					assert.ErrorIs(t, err, store.ErrFenced)
				}
			})
		}
		owners.Wait()
		require.NotEmpty(t, results[5].taken, "nothing ends the newest")
		for i, r := range results {
			_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision,
				Moves: []store.WatermarkStep{{Partition: store.Partition{Generation: uint16(i + 1)}, From: 0, To: 1, Token: r.token}}}, writes(store.Outcome{}))
			if i < 5 {
				assert.ErrorIs(t, err, store.ErrFenced)
			} else {
				assert.NoError(t, err)
			}
		}
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
						_, err := s.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: next, To: next + 1, Token: token}}},
							writes(store.Outcome{Outbox: []store.OutboxFrame{{Partition: p0, Frame: []byte(fmt.Sprint(next))}}}))
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

func texts(frames []store.OutboxFrame) (all []string) {
	for _, b := range frames {
		all = append(all, string(b.Frame))
	}
	return all
}

func idsOf(frames []store.OutboxFrame) (all []int64) {
	for _, b := range frames {
		all = append(all, b.ID)
	}
	return all
}
