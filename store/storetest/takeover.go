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
		assert.Equal(t, []store.TakenOver{{Partition: p9}, {Partition: p1}, {Partition: p0}}, taken)
		none, err := f.a.TakeOver(t.Context(), nil, store.Token{1})
		require.NoError(t, err)
		assert.Empty(t, none)
	}},
	{"I5 during a decision: it is seen whole or fails", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		type result struct {
			taken []store.TakenOver
			err   error
		}
		result2 := make(chan result, 1)
		decided := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 4, Token: token}}},
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
				return store.Outcome{Frames: []store.Frame{frame(p0, 4, "1")}}, nil
			})
		r := <-result2
		require.NoError(t, r.err)
		r.taken[0].Doubt = false // see RunDoubt
		tail := f.tail(f.b, 0, 0)
		if decided == nil {
			assert.Equal(t, []store.TakenOver{{Partition: p0, NextOffset: 4, LastTo: version(4)}}, r.taken)
			assert.Equal(t, []string{"1"}, bodies(tail.Frames))
		} else {
			require.ErrorIs(t, decided, store.ErrFenced)
			assert.Equal(t, []store.TakenOver{{Partition: p0}}, r.taken)
			assert.Equal(t, store.Tail{}, tail)
		}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: r.taken[0].NextOffset, To: 9, Token: token}}}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced, "the old owner is out")
	}},
	{"last_to is that of the newest frame, also of an older generation", func(t *testing.T, f *fixture) {
		revision := f.revision()
		gen := func(g uint16, n int32) store.Partition { return store.Partition{Generation: g, Number: n} }
		decide := func(token store.Token, p store.Partition, from, to int64, frames ...store.Frame) {
			require.NoError(t, f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: step(p, from, to, token)}, writes(store.Outcome{Frames: frames})))
		}
		taken, token := f.own(f.a, 'a', gen(1, 0), gen(1, 1))
		assert.Zero(t, taken[0].LastTo, "before the first frame")
		decide(token, gen(1, 0), 0, 5, frame(gen(1, 0), 4, "1 4"), frame(gen(1, 0), 5, "1 5"))
		decide(token, gen(1, 0), 5, 9)
		taken, token = f.own(f.b, 'b', gen(1, 1), gen(1, 0))
		assert.Equal(t, []change.Version{0, version(5)}, []change.Version{taken[0].LastTo, taken[1].LastTo}, "a decision without a frame keeps it")
		decide(token, gen(1, 0), 9, 12, frame(gen(1, 0), 12, "1 12"))

		taken, _ = f.own(f.a, 'c', gen(2, 1), gen(2, 0))
		assert.Equal(t, []store.TakenOver{{Partition: gen(2, 1)}, {Partition: gen(2, 0), LastTo: version(12)}}, taken)
		taken, token = f.own(f.b, 'd', gen(5, 0))
		assert.Equal(t, version(12), taken[0].LastTo, "over a generation without frames")
		decide(token, gen(5, 0), 0, 3, frame(gen(5, 0), 3, "5 3"))
		taken, _ = f.own(f.b, 'e', gen(6, 0))
		assert.Equal(t, change.NewVersion(5, 3), taken[0].LastTo)
		tail := f.tail(f.a, 0, version(4))
		assert.Equal(t, []string{"1 5", "1 12", "5 3"}, bodies(tail.Frames), "one log of all generations")
		assert.Equal(t, change.NewVersion(5, 3), tail.LastTo)
	}},
	{"I3 I5 a new generation ends all older ones, also of other partitions", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0, p1)
		next := store.Partition{Generation: 3, Number: 0}
		f.own(f.b, 'b', next)
		before := f.state(f.b)
		move := []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: move}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced)
		for _, older := range []store.Partition{p0, {Generation: 2, Number: 0}} {
			_, err = f.a.TakeOver(t.Context(), []store.Partition{p1, older}, store.Token{'c'})
			require.ErrorIs(t, err, store.ErrFenced)
			assert.Equal(t, store.Fenced, store.ClassOf(err))
		}
		assert.Equal(t, before, f.state(f.b))
		move[0].Partition = p1 // whose entities may be in another one by now
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: move}, writes(store.Outcome{}))
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
			err := f.a.Decide(t.Context(), store.Decision{Revision: revision,
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
		// over. Every offset must be in the log once and in order.
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
						err := s.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: next, To: next + 1, Token: token}}},
							writes(store.Outcome{Frames: []store.Frame{frame(p0, next+1, fmt.Sprint(next))}}))
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
		var want []string
		for i := range last {
			want = append(want, fmt.Sprint(i))
		}
		assert.Equal(t, want, bodies(f.tail(f.a, 0, 0).Frames))
	}},
}
