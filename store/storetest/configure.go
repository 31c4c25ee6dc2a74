package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// opens notes a generation.
func opens(generation uint16) store.Note {
	return func(store.History) (store.Noted, error) { return store.Noted{Generation: generation}, nil }
}

// above notes the activation after number.
func above(number int64) store.Note {
	return func(store.History) (store.Noted, error) { return store.Noted{Revision: number + 1}, nil }
}

var configurationTests = []test{
	{"tables are there, Migrate again is a no-op, also at the same time", func(t *testing.T, f *fixture) {
		require.NoError(t, f.a.Ping(t.Context()))
		require.NoError(t, f.a.CheckSchema(t.Context()))
		f.revision()
		before := f.state(f.a)
		var callers sync.WaitGroup
		for n := range 4 {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			callers.Go(func() { assert.NoError(t, s.Migrate(t.Context())) })
		}
		callers.Wait()
		require.NoError(t, f.b.CheckSchema(t.Context()))
		assert.Equal(t, before, f.state(f.b))
	}},
	{"I12 Activate: first, same, other, old one, forced", func(t *testing.T, f *fixture) {
		_, err := f.a.Active(t.Context())
		require.ErrorIs(t, err, store.ErrNotFound)
		first, err := f.a.Activate(t.Context(), []byte{0, 1}, false, store.Inbox{}, nil)
		require.NoError(t, err)
		assert.Positive(t, first.Number)
		assert.Equal(t, []byte{0, 1}, first.Fingerprint)
		assert.WithinDuration(t, time.Now(), first.Activated, time.Minute)
		for _, force := range []bool{false, true} {
			same, err := f.b.Activate(t.Context(), []byte{0, 1}, force, store.Inbox{}, nil)
			require.NoError(t, err)
			assert.Equal(t, first, same, "nothing is written")
		}
		second, err := f.b.Activate(t.Context(), []byte{2}, false, store.Inbox{}, nil)
		require.NoError(t, err)
		assert.Greater(t, second.Number, first.Number)
		_, err = f.a.Activate(t.Context(), []byte{0, 1}, false, store.Inbox{}, nil)
		require.ErrorIs(t, err, store.ErrSuperseded)
		assert.Equal(t, store.Superseded, store.ClassOf(err))
		active, err := f.a.Active(t.Context())
		require.NoError(t, err)
		assert.Equal(t, second, active)
		third, err := f.a.Activate(t.Context(), []byte{0, 1}, true, store.Inbox{}, nil)
		require.NoError(t, err)
		assert.Greater(t, third.Number, second.Number)
		active, err = f.b.Active(t.Context())
		require.NoError(t, err)
		assert.Equal(t, third, active)
		_, err = f.b.Activate(t.Context(), []byte{2}, false, store.Inbox{}, nil)
		require.ErrorIs(t, err, store.ErrSuperseded)
		same, err := f.b.Activate(t.Context(), []byte{0, 1}, false, store.Inbox{}, above(third.Number+5))
		require.NoError(t, err)
		assert.Equal(t, third, same, "nothing is written")
		fourth, err := f.b.Activate(t.Context(), []byte{3}, false, store.Inbox{}, above(third.Number+5))
		require.NoError(t, err)
		assert.Equal(t, third.Number+6, fourth.Number)
		_, err = f.b.Activate(t.Context(), []byte{4}, false, store.Inbox{}, above(third.Number))
		require.ErrorIs(t, err, store.ErrFenced, "the number is taken")
	}},
	{"Activate at the same time gives one revision", func(t *testing.T, f *fixture) {
		var callers sync.WaitGroup
		numbers := make([]int64, 8)
		for n := range numbers {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			callers.Go(func() {
				r, err := s.Activate(t.Context(), []byte("one"), false, store.Inbox{}, nil)
				assert.NoError(t, err)
				numbers[n] = r.Number
			})
		}
		callers.Wait()
		for _, n := range numbers {
			assert.Equal(t, numbers[0], n)
		}
	}},
	{"ResolveInbox: generations only grow", func(t *testing.T, f *fixture) {
		resolve := func(s store.Store, topic, id string, partitions int32, generation uint16) store.Inbox {
			t.Helper()
			i, err := s.ResolveInbox(t.Context(), topic, id, partitions, opens(generation))
			require.NoError(t, err)
			return i
		}
		assert.Equal(t, store.Inbox{Generation: 1, Topic: "inbox", TopicID: "A", Partitions: 4}, resolve(f.a, "inbox", "A", 4, 1))
		assert.Equal(t, uint16(1), resolve(f.b, "inbox", "A", 4, 1).Generation)
		assert.Equal(t, uint16(2), resolve(f.b, "inbox", "B", 8, 2).Generation, "another identity")
		assert.Equal(t, uint16(1), resolve(f.a, "inbox", "A", 4, 9).Generation, "a known one keeps its own")
		assert.Equal(t, uint16(7), resolve(f.a, "inbox", "C", 4, 7).Generation)
		_, err := f.a.ResolveInbox(t.Context(), "other", "D", 4, opens(7))
		require.ErrorIs(t, err, store.ErrFenced, "it is taken")
		next, err := f.a.ResolveInbox(t.Context(), "other", "D", 4, nil)
		require.NoError(t, err)
		assert.Equal(t, uint16(8), next.Generation)
		known, err := f.b.KnownInbox(t.Context(), "inbox", "A")
		require.NoError(t, err)
		assert.Equal(t, store.Inbox{Generation: known.Generation, Topic: "inbox", TopicID: "A", Partitions: 4}, known)
		assert.NotZero(t, known.Generation)
		all, err := f.b.Inboxes(t.Context())
		require.NoError(t, err)
		assert.Contains(t, all, known)
		assert.True(t, slices.IsSortedFunc(all, func(a, b store.Inbox) int { return int(a.Generation) - int(b.Generation) }))
		_, err = f.b.KnownInbox(t.Context(), "inbox", "never resolved")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = f.b.ResolveInbox(t.Context(), "inbox", "A", 5, nil)
		require.ErrorIs(t, err, store.ErrRepartitioned)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
		assert.Equal(t, uint16(32767), resolve(f.a, "inbox", "E", 4, 32767).Generation)
		_, err = f.a.ResolveInbox(t.Context(), "inbox", "F", 4, nil)
		require.Error(t, err, "no generation is left")
		assert.Equal(t, store.Fatal, store.ClassOf(err))
	}},
	{"RenewInbox: I5 a new generation of the same topic goes on where the old one is, and ends its owners", func(t *testing.T, f *fixture) {
		revision := f.revision()
		first, err := f.a.ResolveInbox(t.Context(), "inbox", "A", 2, nil)
		require.NoError(t, err)
		_, token := f.own(f.a, 'x', p0, p1)
		move := func(s store.Store, p store.Partition, from, to int64, token store.Token) error {
			return s.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p, From: from, To: to, Token: token}}},
				writes(store.Outcome{Frames: []store.Frame{frame(p, to, "frame")}}))
		}
		require.NoError(t, move(f.a, p0, 0, 100, token))
		require.NoError(t, move(f.a, p1, 0, 7, token))
		renewed, err := f.b.RenewInbox(t.Context(), first, map[int32]int64{0: 40}, opens(5))
		require.NoError(t, err)
		assert.Equal(t, store.Inbox{Generation: 5, Topic: "inbox", TopicID: "A", Partitions: 2}, renewed)
		require.ErrorIs(t, move(f.a, p1, 7, 8, token), store.ErrFenced, "the owner of before")
		_, err = f.a.TakeOver(t.Context(), []store.Partition{p1}, store.Token{'y'})
		require.ErrorIs(t, err, store.ErrFenced, "its generation is over")
		for range 2 { // also when another process was faster
			again, err := f.a.RenewInbox(t.Context(), first, map[int32]int64{0: 1, 1: 1}, opens(9))
			require.NoError(t, err)
			assert.Equal(t, renewed, again)
		}
		known, err := f.a.KnownInbox(t.Context(), "inbox", "A")
		require.NoError(t, err)
		assert.Equal(t, renewed, known)
		resolved, err := f.a.ResolveInbox(t.Context(), "inbox", "A", 2, nil)
		require.NoError(t, err)
		assert.Equal(t, renewed, resolved)
		n0, n1 := store.Partition{Generation: 5, Number: 0}, store.Partition{Generation: 5, Number: 1}
		taken, token := f.own(f.b, 'z', n0, n1)
		assert.Equal(t, []int64{40, 7}, []int64{taken[0].NextOffset, taken[1].NextOffset})
		assert.Equal(t, []change.Version{version(100), version(7)}, []change.Version{taken[0].LastTo, taken[1].LastTo}, "frames go on from the last one")
		require.NoError(t, move(f.b, n0, 40, 41, token))
		same, err := f.b.RenewInbox(t.Context(), renewed, nil, opens(0))
		require.NoError(t, err)
		assert.Equal(t, renewed, same, "none is opened")
		assert.Equal(t, []store.Frame{{To: version(100), Body: []byte("frame")}, {To: change.NewVersion(5, 41), Body: []byte("frame")}}, f.tail(f.a, 0, 0).Frames, "in one log")
		require.NoError(t, move(f.b, n0, 41, 42, token))
		_, err = f.b.RenewInbox(t.Context(), store.Inbox{Generation: 1, Topic: "inbox", TopicID: "never resolved"}, nil, nil)
		require.ErrorIs(t, err, store.ErrNotFound)
	}},
	{"I11 numbers of services are stable across handles", func(t *testing.T, f *fixture) {
		none, err := f.a.Services(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, none)
		var callers sync.WaitGroup
		got := make([]map[string]int32, 6)
		for n := range got {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			callers.Go(func() {
				var names []string
				for i := range 20 {
					names = append(names, fmt.Sprint("acme/p@", (i*7+n*3)%23))
				}
				var err error
				got[n], err = s.Services(t.Context(), append(names, names[0]))
				assert.NoError(t, err)
				assert.Len(t, got[n], 20)
			})
		}
		callers.Wait()
		names, numbers := map[string]int32{}, map[int32]string{}
		for _, m := range got {
			for name, n := range m {
				if have, ok := names[name]; ok {
					assert.Equal(t, have, n)
				}
				if have, ok := numbers[n]; ok {
					assert.Equal(t, have, name)
				}
				names[name], numbers[n] = n, name
			}
		}
	}},
}

var positionTests = []test{
	{"a position never goes backwards", func(t *testing.T, f *fixture) {
		_, err := f.a.Position(t.Context(), "lab", "file-1")
		require.ErrorIs(t, err, store.ErrNotFound)
		set := func(offset int64, state []byte) {
			require.NoError(t, f.a.SetPosition(t.Context(), store.SourcePosition{Source: "lab", Identity: "file-1", Offset: offset, State: state}))
		}
		get := func() store.SourcePosition {
			p, err := f.b.Position(t.Context(), "lab", "file-1")
			require.NoError(t, err)
			return p
		}
		set(0, nil)
		assert.Equal(t, store.SourcePosition{Source: "lab", Identity: "file-1"}, get())
		set(5, []byte{0, 1})
		set(4, []byte("older"))
		assert.Equal(t, store.SourcePosition{Source: "lab", Identity: "file-1", Offset: 5, State: []byte{0, 1}}, get())
		set(5, []byte("same place"))
		assert.Equal(t, "same place", string(get().State))
		require.NoError(t, f.a.SetPosition(t.Context(), store.SourcePosition{Source: "lab", Identity: "file-2", Offset: 1}))
		assert.Equal(t, int64(5), get().Offset)
	}},
}

var readerTests = []test{
	{"entities page by the bytes of their ids", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		ids := []string{"A", "B", "Z", "a", "a/1", "b", "é", "\U0001F34C"} // no locale may reorder them
		var out store.Outcome
		for i, id := range ids {
			out.Entities = append([]store.Entity{{ID: id, Docs: fmt.Appendf(nil, `{"s":%d}`, i)}}, out.Entities...)
		}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 1, Token: token}}}, writes(out))
		require.NoError(t, err)
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := f.b.Entities(t.Context(), after, 3)
			require.NoError(t, err)
			for _, e := range page {
				assert.True(t, e.Found)
				got = append(got, e.ID)
			}
			if len(page) < 3 {
				break
			}
		}
		assert.Equal(t, ids, got)
		_, err = f.a.Entity(t.Context(), "missing")
		require.ErrorIs(t, err, store.ErrNotFound)
	}},
	{"known services, and the number of entities", func(t *testing.T, f *fixture) {
		n, err := f.a.CountEntities(t.Context())
		require.NoError(t, err)
		assert.Zero(t, n)
		before, err := f.a.KnownServices(t.Context())
		require.NoError(t, err)
		numbers, err := f.a.Services(t.Context(), []string{"known/p@s", "known/q@s"})
		require.NoError(t, err)
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		out := store.Outcome{Entities: []store.Entity{{ID: "a"}, {ID: "b"}}}
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 1, Token: token}}}, writes(out))
		require.NoError(t, err)
		n, err = f.b.CountEntities(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, n)
		known, err := f.b.KnownServices(t.Context())
		require.NoError(t, err)
		assert.Len(t, known, len(before)+2)
		for name, number := range numbers {
			assert.Equal(t, number, known[name])
		}
	}},
	{"audits page by id", func(t *testing.T, f *fixture) {
		revision := f.revision()
		var out store.Outcome
		for i := range 5 {
			out.Audit = append(out.Audit, store.Audit{Actor: "anna", Action: "reset", Reason: "drift", Entity: fmt.Sprint(i), Service: "s"})
		}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(out))
		require.NoError(t, err)
		page, err := f.b.Audits(t.Context(), store.AuditFilter{Limit: 3})
		require.NoError(t, err)
		require.Len(t, page, 3)
		rest, err := f.b.Audits(t.Context(), store.AuditFilter{AfterID: page[2].ID, Limit: 3})
		require.NoError(t, err)
		require.Len(t, rest, 2)
		last := rest[1]
		assert.WithinDuration(t, time.Now(), last.Time, time.Minute)
		last.ID, last.Time = 0, time.Time{}
		assert.Equal(t, out.Audit[4], last)
	}},
}
