package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// What an owner may rely on that decides from memory.
var ownerTests = []test{
	{"I3 what is decided before anything is compared is written only if token, offset and revision match", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, stale := f.own(f.a, 'a', p0, p1)
		_, token := f.own(f.b, 'b', p0)
		next, err := f.b.Activate(t.Context(), []byte("other"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		before := f.state(f.b)
		good := store.WatermarkStep{Partition: p0, From: 0, To: 5, Token: token}
		for name, c := range map[string]struct {
			d    store.Decision
			want error
		}{
			"token":         {store.Decision{Revision: next.Number, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: stale}}}, store.ErrFenced},
			"offset":        {store.Decision{Revision: next.Number, Moves: []store.WatermarkStep{{Partition: p0, From: 4, To: 5, Token: token}}}, store.ErrFenced},
			"one of two":    {store.Decision{Revision: next.Number, Moves: []store.WatermarkStep{{Partition: p1, From: 0, To: 5}, good}}, store.ErrFenced},
			"nothing moves": {store.Decision{Revision: next.Number, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 0, Token: stale}}}, store.ErrFenced},
			"revision":      {store.Decision{Revision: revision, Moves: []store.WatermarkStep{good}}, store.ErrSuperseded},
		} {
			err := f.a.Decide(t.Context(), c.d, writes(everything(p0, service, version(1))))
			require.ErrorIs(t, err, c.want, name)
			assert.Equal(t, before, f.state(f.b), name)
		}
		err = f.b.Decide(t.Context(), store.Decision{Revision: next.Number, Moves: []store.WatermarkStep{good}}, writes(everything(p0, service, version(1))))
		require.NoError(t, err, "the right owner goes on")
	}},
	{"I3 an owner that was taken over from while it decided from memory writes nothing", func(t *testing.T, f *fixture) {
		revision, service := f.revision(), f.service("s")
		_, token := f.own(f.a, 'a', p0)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 5, Token: token}}},
			func(store.Loaded) (store.Outcome, error) {
				_, err := f.b.TakeOver(t.Context(), []store.Partition{p0}, store.Token{'b'})
				require.NoError(t, err)
				return everything(p0, service, version(1)), nil
			})
		require.ErrorIs(t, err, store.ErrFenced)
		got := f.state(f.b)
		assert.Empty(t, got.Entities)
		assert.Equal(t, int64(0), got.Watermarks[p0])
	}},
	{"I3 decisions of owners that take over from one another are linearizable", func(t *testing.T, f *fixture) {
		history := f.race(false)
		assert.True(t, porcupine.CheckOperations(lastSeen, history), "the history of %d operations is not linearizable", len(history))
	}},
	{"I3 the checker finds an owner that goes on from memory after it was taken over from", func(t *testing.T, f *fixture) {
		assert.False(t, porcupine.CheckOperations(lastSeen, f.race(true)))
	}},
}

// race lets owners of one partition decide contents of four keys, from memory as
// far as they have it, and take over whenever they are fenced. It records what
// each decision passed. When it is broken, owners keep their memory then.
func (f *fixture) race(broken bool) []porcupine.Operation {
	revision, service, start := f.revision(), f.service("s"), time.Now()
	racers := make([]*racer, 6)
	var group sync.WaitGroup
	for n := range racers {
		r := &racer{f: f, s: turn(n, f.a, f.b), number: n, revision: revision, service: service, start: start, broken: broken,
			random: rand.New(rand.NewPCG(uint64(n), 42)), memory: map[string]store.Entity{}}
		racers[n] = r
		group.Go(r.run)
	}
	group.Wait()
	var history []porcupine.Operation
	for _, r := range racers {
		history = append(history, r.history...)
	}
	return history
}

// racer is one owner of a race.
type racer struct {
	f        *fixture
	s        store.Store
	number   int
	revision int64
	service  int32
	start    time.Time
	broken   bool
	random   *rand.Rand

	token   store.Token // zero: it has to take over
	next    int64
	memory  map[string]store.Entity
	history []porcupine.Operation
}

func (r *racer) run() {
	for round := 0; round < 25; {
		if r.token == (store.Token{}) {
			err := r.takeOver(round)
			if err != nil && store.ClassOf(err) == store.Retry {
				continue
			}
			if !assert.NoError(r.f, err) {
				return
			}
		}
		err := r.decide()
		if errors.Is(err, store.ErrFenced) || err != nil && store.ClassOf(err) == store.Retry {
			r.token = store.Token{}
			continue
		}
		if !assert.NoError(r.f, err) {
			return
		}
		r.next++
		round++
		if r.random.IntN(4) == 0 { // and fight again
			r.token = store.Token{}
		}
	}
}

func (r *racer) takeOver(round int) error {
	mine := store.Token{byte(r.number + 1), byte(round), byte(r.random.Uint32())}
	taken, err := r.s.TakeOver(r.f.ctx(), []store.Partition{p0}, mine)
	if err != nil {
		return err
	}
	if r.token, r.next = mine, taken[0].NextOffset; !r.broken {
		clear(r.memory)
	}
	return nil
}

// decide decides some contents, and records what passed.
func (r *racer) decide() error {
	const keys = 4
	var offered []input
	for _, e := range r.random.Perm(keys)[:1+r.random.IntN(keys)] {
		offered = append(offered, input{store.Key{Service: r.service, Entity: fmt.Sprint("k", e)}, string(content(string(rune('A' + r.random.IntN(3)))))})
	}
	learned := map[string]store.Entity{}
	d := store.Decision{Revision: r.revision, Moves: []store.WatermarkStep{{Partition: p0, From: r.next, To: r.next + 1, Token: r.token}}}
	for _, in := range offered {
		if e, known := r.memory[in.key.Entity]; known {
			learned[e.ID] = e
		} else {
			d.Entities = append(d.Entities, in.key.Entity)
		}
	}
	var passed []bool
	call := time.Since(r.start)
	err := r.s.Decide(r.f.ctx(), d, func(loaded store.Loaded) (out store.Outcome, err error) {
		for _, e := range loaded.Entities {
			learned[e.ID] = e
		}
		passed, out = r.outcome(offered, learned)
		return out, nil
	})
	back := time.Since(r.start)
	if err != nil {
		return err
	}
	for i, in := range offered {
		r.history = append(r.history, porcupine.Operation{ClientId: r.number, Input: in, Output: passed[i], Call: int64(call), Return: int64(back)})
	}
	maps.Copy(r.memory, learned)
	return nil
}

// outcome returns the contents that pass, and their writes; learned is the owner's memory
// after that.
func (r *racer) outcome(offered []input, learned map[string]store.Entity) (passed []bool, out store.Outcome) {
	for _, in := range offered {
		e := learned[in.key.Entity]
		row := e.States.Get(r.service)
		differs := !row.Found || !bytes.Equal(row.Content, []byte(in.content))
		if passed = append(passed, differs); differs && !r.broken {
			e.States.Set(store.Row{Key: in.key, Content: []byte(in.content), Version: version(r.next)})
			out.Entities = append(out.Entities, e)
			e.Writes, e.States = e.Writes+1, e.States.Stored()
		} else if differs {
			e.States = StatesOf(store.Row{Key: in.key, Content: []byte(in.content)})
		}
		learned[e.ID] = e
	}
	return passed, out
}

// input is one decision of the model.
type input struct {
	key     store.Key
	content string
}

// lastSeen is the dam as a sequential machine: per key the last content; an
// offered content passes when it differs, and is the last content from then on.
var lastSeen = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[store.Key][]porcupine.Operation)
		for _, o := range history {
			k := o.Input.(input).key
			byKey[k] = append(byKey[k], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		c := in.(input).content
		return out.(bool) == (state.(string) != c), c
	},
}
