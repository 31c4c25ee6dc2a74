package storetest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

var poisonTests = []test{
	{"I9 a value that cannot be held writes nothing and does not stop the owner", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		d := store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}}
		before := f.state(f.b)
		for name, spoil := range map[string]func(*store.Outcome){
			"NUL in an id": func(o *store.Outcome) {
				o.Entities = append(o.Entities, store.Entity{ID: "a\x00b", Docs: []byte(`{}`)})
			},
			"invalid UTF-8 in an id": func(o *store.Outcome) {
				o.Entities = append(o.Entities, store.Entity{ID: "a\xffb", Docs: []byte(`{}`)})
			},
			"invalid UTF-8": func(o *store.Outcome) {
				o.Entities = append(o.Entities, store.Entity{ID: "x", Docs: []byte("{\"a\":\"\xff\"}")})
			},
			"audit detail": func(o *store.Outcome) { o.Audit = append(o.Audit, store.Audit{Detail: []byte("{")}) },
		} {
			out := everything(p0, service, version(1))
			spoil(&out)
			err := f.a.Decide(t.Context(), d, writes(out))
			require.Error(t, err, name)
			assert.Equal(t, store.Poison, store.ClassOf(err), "%s: %v", name, err)
			assert.Equal(t, before, f.state(f.b), name)
		}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: d.Moves, Entities: []string{"a\x00b"}}, writes(store.Outcome{}))
		assert.Equal(t, store.Poison, store.ClassOf(err), "%v", err)
		assert.Equal(t, before, f.state(f.b))
		err = f.a.Decide(t.Context(), d, writes(everything(p0, service, version(1))))
		require.NoError(t, err)
	}},
	{"I9 outside of decisions", func(t *testing.T, f *fixture) {
		bad := store.Key{Service: f.service("s"), Entity: "a\x00b"}
		_, err := f.a.Rows(t.Context(), []store.Key{bad})
		assert.Equal(t, store.Poison, store.ClassOf(err), "%v", err)
	}},
	{"I9 a dead letter is never refused", func(t *testing.T, f *fixture) {
		letter := store.DeadLetter{Stage: store.StageIngest, Code: "bad_id", Reason: "NUL \x00 in an id", Source: "s", Entity: "a\x00b", EventID: "\xff",
			Topic: "t", DedupKey: "ingest/s/\x00/\xff", Payload: []byte{0, 0xff}, Headers: []byte("not JSON \x00")}
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{letter}))
		letters, err := f.b.ListLetters(t.Context(), store.LetterFilter{})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		got, err := f.b.Letter(t.Context(), letters[0].ID)
		require.NoError(t, err)
		assert.Equal(t, letter.Payload, got.Payload)
		assert.Equal(t, letter.Headers, got.Headers)
		assert.Equal(t, letter.DedupKey, got.DedupKey)
		assert.Equal(t, "a\uFFFDb", got.Entity)
	}},
}

var cancelTests = []test{
	{"I8 before a call", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		before := f.state(f.b)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := f.a.Decide(ctx, store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}},
			writes(everything(p0, service, version(1))))
		assertCancelled(t, err)
		_, err = f.a.TakeOver(ctx, []store.Partition{p0, p1}, store.Token{9})
		assertCancelled(t, err)
		_, err = f.a.Activate(ctx, []byte("other"), false, store.Inbox{}, nil)
		assertCancelled(t, err)
		assertCancelled(t, f.a.AddLetters(ctx, []store.DeadLetter{{DedupKey: "x"}}))
		_, err = f.a.TakeProgress(ctx, []int32{0}, store.Token{9})
		assertCancelled(t, err)
		_, err = f.a.SwapProgress(ctx, revision, []store.ProgressSwap{{}})
		assertCancelled(t, err)
		assertCancelled(t, f.a.SetPosition(ctx, store.SourcePosition{Source: "s"}))
		assert.Equal(t, before, f.state(f.b))
		err = f.b.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}}, writes(store.Outcome{}))
		require.NoError(t, err)
	}},
	{"I8 inside a decision", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		before := f.state(f.b)
		d := store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}}
		for range 5 { // and no connection or lock is lost by it
			ctx, cancel := context.WithCancel(t.Context())
			err := f.a.Decide(ctx, d, func(store.Loaded) (store.Outcome, error) {
				cancel()
				return everything(p0, service, version(1)), nil
			})
			require.ErrorIs(t, err, context.Canceled)
			assert.Contains(t, []store.Class{store.Retry, store.Unknown}, store.ClassOf(err))
			assert.Equal(t, before, f.state(f.b))
		}
		err := f.b.Decide(t.Context(), d, writes(everything(p0, service, version(1))))
		require.NoError(t, err)
	}},
	{"I1 at any moment: all of a decision is there, or nothing and a class that says so", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		next, payload := int64(0), bytes.Repeat([]byte("x"), 1<<20)
		for n := range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*400*time.Microsecond)
			err := f.a.Decide(ctx, store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: next, To: next + 1, Token: token}}},
				writes(store.Outcome{Frames: []store.Frame{{Partition: p0, To: version(next + 1), Body: payload}}}))
			cancel()
			taken, again := f.own(f.b, byte(n), p0) // as an owner does after such an error
			token = again
			switch {
			case err == nil:
				next++
			case store.ClassOf(err) == store.Unknown:
				next = taken[0].NextOffset
			default:
				assert.Equal(t, store.Retry, store.ClassOf(err), "%v", err)
			}
			require.Equal(t, next, taken[0].NextOffset, "%v", err)
			require.Len(t, f.tail(f.b, 0, 0).Frames, int(next))
		}
	}},
}

func assertCancelled(t *testing.T, err error) {
	t.Helper()
	if assert.ErrorIs(t, err, context.Canceled) {
		assert.Equal(t, store.Retry, store.ClassOf(err), "nothing was sent")
	}
}
