package storetest

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

var decideTests = []test{
	{"writes all of an outcome", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("acme/ripeness@hook")
		_, token := f.own(f.a, 'a', p0)
		deleted := time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)
		out := everything(p0, service, version(7))
		out.Entities = append(out.Entities, store.Entity{ID: "banana-2", Docs: []byte(`{}`), Fence: []byte{0, 255}, Version: version(8), Deleted: deleted})
		err := f.a.Decide(t.Context(), store.Decision{
			Revision: revision,
			Moves:    []store.WatermarkStep{{Partition: p0, From: 0, To: 9, Token: token}},
			Entities: []string{"banana-2", "banana-1"},
		}, func(loaded store.Loaded) (store.Outcome, error) {
			assert.Equal(t, []store.Entity{{ID: "banana-2"}, {ID: "banana-1"}}, loaded.Entities)
			return out, nil
		})
		require.NoError(t, err)

		got := f.state(f.b)
		assert.Equal(t, map[store.Partition]int64{p0: 9}, got.Watermarks)
		for i := range out.Entities {
			out.Entities[i].Found, out.Entities[i].Writes, out.Entities[i].States = true, 1, out.Entities[i].States.Stored()
		}
		require.Len(t, got.Entities, 2)
		assert.Equal(t, out.Entities[0], got.Entities[0])
		assert.Equal(t, deleted, got.Entities[1].Deleted)
		assert.Equal(t, []byte{0, 255}, got.Entities[1].Fence)
		assert.Equal(t, []store.Row{{
			Key: store.Key{Service: service, Entity: "banana-1"}, Found: true, Content: content("one"), Version: version(7),
		}}, got.Entities[0].States.All("banana-1"))
		assert.Len(t, got.Letters, 1)
		require.Len(t, got.Audits, 1)
		assert.JSONEq(t, `{"n":1}`, string(got.Audits[0].Detail))

		assert.Equal(t, map[int32]store.Mark{0: {Watermark: version(9), LastTo: version(7), Begins: version(7)}}, got.Marks)
		assert.Equal(t, store.Tail{Frames: []store.Frame{{To: version(7), Body: []byte("changes")}}, LastTo: version(7)}, got.Tails[0])

		taken, _ := f.own(f.b, 'b', p0)
		assert.Equal(t, []store.TakenOver{{Partition: p0, NextOffset: 9, LastTo: version(7)}}, taken)
	}},
	{"loads entities in the order asked and replaces them", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		first := store.Entity{ID: "x", Docs: []byte(`{"s": {"b":1e2,"a":"\u00e9"}}`), Fence: []byte("f"), Version: version(1), Fingerprint: []byte("p")}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 1, Token: token}}},
			writes(store.Outcome{Entities: []store.Entity{first}}))
		require.NoError(t, err)
		second := store.Entity{ID: "x", Version: version(2), Writes: 1, Deleted: time.UnixMilli(5).UTC()}
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 1, To: 2, Token: token}}, Entities: []string{"w", "x", "y"}},
			func(loaded store.Loaded) (store.Outcome, error) {
				want := first
				want.Found, want.Writes = true, 1 // and the documents byte for byte: member order and literals stay
				assert.Equal(t, []store.Entity{{ID: "w"}, want, {ID: "y"}}, loaded.Entities)
				return store.Outcome{Entities: []store.Entity{second}}, nil
			})
		require.NoError(t, err)
		got, err := f.b.Entity(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, store.Entity{ID: "x", Docs: []byte("{}"), Version: version(2), Deleted: time.UnixMilli(5).UTC(), Writes: 2, Found: true}, got,
			"absent documents are an empty object, a nil fingerprint replaces one")
	}},
	{"empty decision", func(t *testing.T, f *fixture) {
		revision := f.revision()
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, func(loaded store.Loaded) (store.Outcome, error) {
			assert.Empty(t, loaded.Entities)
			return store.Outcome{}, nil
		})
		require.NoError(t, err)
	}},
	{"I5 stale token or wrong offset writes nothing", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, stale := f.own(f.a, 'a', p0, p1)
		_, token := f.own(f.b, 'b', p0)
		_, token1 := f.own(f.b, 'c', p1)
		good := store.WatermarkStep{Partition: p1, From: 0, To: 5, Token: token1}
		before := f.state(f.b)
		for name, bad := range map[string]store.WatermarkStep{
			"token":        {Partition: p0, From: 0, To: 5, Token: stale},
			"offset":       {Partition: p0, From: 1, To: 5, Token: token},
			"both":         {Partition: p0, From: 1, To: 5, Token: stale},
			"no watermark": {Partition: store.Partition{Generation: 1, Number: 7}, To: 5, Token: token},
			"generation":   {Partition: store.Partition{Generation: 2}, To: 5, Token: token},
		} {
			for _, moves := range [][]store.WatermarkStep{{bad}, {good, bad}, {bad, good}} {
				called := false
				err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: moves, Entities: []string{"banana-1"}},
					func(store.Loaded) (store.Outcome, error) {
						called = true
						return everything(moves[0].Partition, service, version(1)), nil
					})
				require.ErrorIs(t, err, store.ErrFenced, name)
				assert.Equal(t, store.Fenced, store.ClassOf(err), name)
				assert.False(t, called, "the callback has nothing to decide")
				assert.Equal(t, before, f.state(f.b), name)
			}
		}
		err := f.b.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{good, {Partition: p0, From: 0, To: 5, Token: token}}},
			writes(everything(p0, service, version(1))))
		require.NoError(t, err, "the right owner goes on")
	}},
	{"I5 its own commit of unknown outcome fences an owner", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		d := store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 3, Token: token}}}
		err := f.a.Decide(t.Context(), d, writes(store.Outcome{}))
		require.NoError(t, err)
		err = f.a.Decide(t.Context(), d, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrFenced)
	}},
	{"I12 superseded revision writes nothing", func(t *testing.T, f *fixture) {
		old, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		next, err := f.b.Activate(t.Context(), []byte("other"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		before := f.state(f.b)
		for _, revision := range []int64{old, next.Number + 1, 0} {
			err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}},
				writes(everything(p0, service, version(1))))
			require.ErrorIs(t, err, store.ErrSuperseded)
			assert.Equal(t, store.Superseded, store.ClassOf(err))
			assert.Equal(t, before, f.state(f.b))
		}
		err = f.a.Decide(t.Context(), store.Decision{Revision: next.Number, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}},
			writes(everything(p0, service, version(1))))
		require.NoError(t, err)
	}},
	{"I12 no decision of an older revision commits after Activate returned", func(t *testing.T, f *fixture) {
		old := f.revision()
		_, token := f.own(f.a, 'a', p0)
		activated := make(chan error, 1)
		before := false
		decided := f.a.Decide(t.Context(), store.Decision{Revision: old, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}},
			func(store.Loaded) (store.Outcome, error) {
				go func() {
					_, err := f.b.Activate(t.Context(), []byte("other"), false, store.Inbox{}, nil)
					activated <- err
				}()
				select {
				case err := <-activated:
					before = true
					activated <- err
				case <-time.After(100 * time.Millisecond): // it waits for the decision, or comes before its comparison
				}
				return store.Outcome{}, nil
			})
		require.NoError(t, <-activated)
		marks, err := f.b.Watermarks(t.Context())
		require.NoError(t, err)
		if before || decided != nil {
			require.ErrorIs(t, decided, store.ErrSuperseded)
			assert.Equal(t, int64(0), marks[p0])
			return
		}
		require.NoError(t, decided)
		assert.Equal(t, int64(5), marks[p0])
	}},
	{"no active revision supersedes all", func(t *testing.T, f *fixture) {
		err := f.a.Decide(t.Context(), store.Decision{Revision: 1}, writes(store.Outcome{}))
		require.ErrorIs(t, err, store.ErrSuperseded)
	}},
	{"an error of the callback comes back as it is", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		mine := errors.New("mine")
		d := store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}}
		err := f.a.Decide(t.Context(), d, func(store.Loaded) (store.Outcome, error) { return store.Outcome{}, mine })
		assert.Same(t, mine, err)
		err = f.a.Decide(t.Context(), d, writes(store.Outcome{}))
		require.NoError(t, err, "nothing was written by the first")
	}},
	{"a panic of the callback leaves nothing behind", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		d := store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}}
		assert.Panics(t, func() {
			_ = f.a.Decide(t.Context(), d, func(store.Loaded) (store.Outcome, error) { panic("bug") })
		})
		err := f.b.Decide(t.Context(), d, writes(store.Outcome{}))
		require.NoError(t, err)
	}},
	{"a frame of a partition that is not held is a bug", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		before := f.state(f.a)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: step(p0, 0, 5, token)}, writes(store.Outcome{Frames: []store.Frame{frame(p0, 4, "x"), frame(p1, 5, "x")}}))
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
		assert.Equal(t, before, f.state(f.a))
	}},
	{"big values", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		doc := append(append([]byte(`{"s":"`), bytes.Repeat([]byte("banana! "), 1<<20)...), `"}`...)
		changes := bytes.Repeat([]byte{0, 1, 2, 255}, 2<<20)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 1, Token: token}}},
			writes(store.Outcome{
				Entities: []store.Entity{{ID: "big", Docs: doc, Version: version(0)}},
				Frames:   []store.Frame{{Partition: p0, To: version(1), Body: changes}},
				Letters:  []store.DeadLetter{{Stage: store.StageDecide, Code: "oversized", DedupKey: "big", Payload: changes}},
			}))
		require.NoError(t, err)
		e, err := f.b.Entity(t.Context(), "big")
		require.NoError(t, err)
		assert.True(t, bytes.Equal(doc, e.Docs))
		frames := f.tail(f.b, 0, 0).Frames
		require.Len(t, frames, 1)
		assert.True(t, bytes.Equal(changes, frames[0].Body))
		letters, err := f.b.ListLetters(t.Context(), store.LetterFilter{})
		require.NoError(t, err)
		l, err := f.b.Letter(t.Context(), letters[0].ID)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(changes, l.Payload))
	}},
}

var claimTests = []test{
	{"I2 a decision finds which claims had their effect, and writes those of its own", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		one, two := f.claim("1"), f.claim("2")
		decide := func(s store.Store, from int64, found map[store.ClaimID]change.Version, out store.Outcome) error {
			return s.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: from, To: from + 1, Token: token}}, Claims: []store.ClaimID{two, one, two}},
				func(loaded store.Loaded) (store.Outcome, error) {
					assert.Equal(t, found, loaded.Decided)
					return out, nil
				})
		}
		require.NoError(t, decide(f.a, 0, nil, store.Outcome{Claims: []store.Decided{{ID: one, Version: version(7)}}}))
		had := map[store.ClaimID]change.Version{one: version(7)}
		err := decide(f.b, 1, had, store.Outcome{
			Claims:   []store.Decided{{ID: two, Version: version(8)}, {ID: one, Version: version(8)}},
			Entities: []store.Entity{{ID: "banana-1", Version: version(8)}},
		})
		require.ErrorIs(t, err, store.ErrFenced, "another decision was first")
		assert.Empty(t, f.state(f.a).Entities, "and nothing is written")
		err = decide(f.a, 1, had, store.Outcome{Claims: []store.Decided{{ID: two, Version: version(8)}, {ID: two, Version: version(9)}}})
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err), "twice in one outcome is a bug")
		require.NoError(t, decide(f.b, 1, had, store.Outcome{Claims: []store.Decided{{ID: two, Version: version(9)}}}))
		require.NoError(t, decide(f.a, 2, map[store.ClaimID]change.Version{one: version(7), two: version(9)}, store.Outcome{}))
	}},
	{"I3 of decisions about one claim at the same time one has the effect", func(t *testing.T, f *fixture) {
		revision := f.revision()
		id := f.claim("k")
		assert.Equal(t, 1, f.winners(func(i int) (store.Decision, func(store.Loaded) (store.Outcome, bool)) {
			return store.Decision{Revision: revision, Claims: []store.ClaimID{id}}, func(loaded store.Loaded) (store.Outcome, bool) {
				if loaded.Decided != nil {
					return store.Outcome{}, false
				}
				return store.Outcome{Claims: []store.Decided{{ID: id, Version: version(int64(i))}}}, true
			}
		}))
	}},
}

// winners makes decisions at the same time, by both processes in turn and each
// until it is not fenced any more, as decide does, and returns how many of them won.
// decision returns the i-th, its outcome for the loaded entities, and whether it wins.
func (f *fixture) winners(decision func(i int) (store.Decision, func(store.Loaded) (store.Outcome, bool))) int {
	var winners atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		s := turn(i, f.a, f.b)
		d, outcome := decision(i)
		group.Go(func() {
			for {
				won := false
				err := s.Decide(f.ctx(), d, func(loaded store.Loaded) (out store.Outcome, err error) {
					out, won = outcome(loaded)
					return out, nil
				})
				if err == nil && won {
					winners.Add(1)
				}
				if !errors.Is(err, store.ErrFenced) {
					assert.NoError(f, err)
					return
				}
			}
		})
	}
	group.Wait()
	return int(winners.Load())
}
