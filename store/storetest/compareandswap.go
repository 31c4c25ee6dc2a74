package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// swapper is what the linearizability test drives.
type swapper interface {
	CompareAndSwap(ctx context.Context, checks []store.Check) ([]bool, error)
}

var compareAndSwapTests = []test{
	{"I4 A,B,A,B are four changes, A,A,A,B two", func(t *testing.T, f *fixture) {
		service := f.service("s")
		for entity, want := range map[string][]bool{"ABAB": {true, true, true, true}, "AAAB": {true, false, false, true}} {
			var got []bool
			for i, c := range entity {
				s := turn(i, f.a, f.b)
				passed, err := s.CompareAndSwap(t.Context(), []store.Check{{Key: store.Key{Service: service, Entity: entity}, Content: content(string(c)), Version: version(int64(i))}})
				require.NoError(t, err)
				got = append(got, passed...)
			}
			assert.Equal(t, want, got, entity)
			last := f.row(f.a, store.Key{Service: service, Entity: entity})
			assert.Equal(t, content("B"), last.Content)
			assert.Equal(t, version(3), last.Version)
		}
	}},
	{"a batch answers in its order and writes only what differs", func(t *testing.T, f *fixture) {
		service := f.service("s")
		check := func(entity, text string, v int64) store.Check {
			return store.Check{Key: store.Key{Service: service, Entity: entity}, Content: content(text), Version: version(v)}
		}
		passed, err := f.a.CompareAndSwap(t.Context(), []store.Check{check("z", "A", 5), check("a", "A", 5), check("m", "A", 5)})
		require.NoError(t, err)
		assert.Equal(t, []bool{true, true, true}, passed)
		passed, err = f.b.CompareAndSwap(t.Context(), []store.Check{check("z", "A", 9), check("n", "A", 9), check("a", "B", 3), check("m", "A", 9)})
		require.NoError(t, err)
		assert.Equal(t, []bool{false, true, true, false}, passed)
		assert.Equal(t, version(5), f.row(f.a, check("z", "", 0).Key).Version, "a duplicate is not written")
		assert.Equal(t, version(5), f.row(f.a, check("a", "", 0).Key).Version, "nor does a version go backwards")
		assert.Equal(t, version(9), f.row(f.a, check("n", "", 0).Key).Version)
		passed, err = f.a.CompareAndSwap(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, passed)
	}},
	{"the unknown state equals nothing", func(t *testing.T, f *fixture) {
		k := store.Key{Service: f.service("s"), Entity: "e"}
		for i, c := range []change.Content{nil, nil, content("A"), nil, content("A")} {
			passed, err := f.a.CompareAndSwap(t.Context(), []store.Check{{Key: k, Content: c, Version: version(int64(i))}})
			require.NoError(t, err)
			assert.Equal(t, []bool{true}, passed, i)
			assert.Equal(t, c, f.row(f.b, k).Content)
		}
	}},
	{"I3 linearizable from 16 goroutines over two handles", func(t *testing.T, f *fixture) {
		history := f.race(f.service("s"), f.a, f.b)
		assert.True(t, porcupine.CheckOperations(lastSeen, history), "the history of %d operations is not linearizable", len(history))
	}},
	{"I3 the checker finds a compare that is not part of the swap", func(t *testing.T, f *fixture) {
		// Two callers meet between their read and their write: both see A, both
		// pass B. The same checker must refuse that history.
		k := store.Key{Service: f.service("s"), Entity: "e"}
		_, err := f.a.CompareAndSwap(t.Context(), []store.Check{{Key: k, Content: content("A"), Version: version(1)}})
		require.NoError(t, err)
		history := []porcupine.Operation{{Input: input{k, string(content("A"))}, Output: true, Call: 0, Return: 1}}
		var both, callers sync.WaitGroup
		both.Add(2)
		results := make([][]bool, 2)
		for n, s := range []store.Store{f.a, f.b} {
			broken := readThenWrite{s, func() { both.Done(); both.Wait() }}
			callers.Go(func() {
				var err error
				results[n], err = broken.CompareAndSwap(t.Context(), []store.Check{{Key: k, Content: content("B"), Version: version(2)}})
				assert.NoError(t, err)
			})
		}
		callers.Wait()
		for n := range results {
			history = append(history, porcupine.Operation{ClientId: n, Input: input{k, string(content("B"))}, Output: results[n][0], Call: 2, Return: 3})
		}
		assert.False(t, porcupine.CheckOperations(lastSeen, history))
		// While the real one lets exactly one of two pass.
		k.Entity = "real"
		for n, s := range []store.Store{f.a, f.b} {
			callers.Go(func() {
				var err error
				results[n], err = s.CompareAndSwap(t.Context(), []store.Check{{Key: k, Content: content("B"), Version: version(2)}})
				assert.NoError(t, err)
			})
		}
		callers.Wait()
		assert.NotEqual(t, results[0], results[1])
	}},
	{"crossing batches finish", func(t *testing.T, f *fixture) {
		service := f.service("s")
		var callers sync.WaitGroup
		for n := range 6 {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			callers.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(n)))
				for round := range 8 {
					checks := make([]store.Check, 100)
					for i, e := range random.Perm(len(checks)) {
						checks[i] = store.Check{Key: store.Key{Service: service, Entity: fmt.Sprint(e)},
							Content: content(fmt.Sprint(random.IntN(3))), Version: version(int64(round))}
					}
					_, err := s.CompareAndSwap(t.Context(), checks)
					assert.NoError(t, err)
				}
			})
		}
		callers.Wait()
	}},
}

// race lets 16 goroutines swap three contents on four keys and records what
// each of them saw.
func (f *fixture) race(service int32, handles ...swapper) []porcupine.Operation {
	const goroutines, rounds, keys = 16, 12, 4
	start := time.Now()
	histories := make([][]porcupine.Operation, goroutines)
	var callers sync.WaitGroup
	for n := range goroutines {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 42))
			for round := range rounds {
				var checks []store.Check
				for _, e := range random.Perm(keys)[:1+random.IntN(keys)] {
					checks = append(checks, store.Check{Key: store.Key{Service: service, Entity: fmt.Sprint("k", e)},
						Content: content(string(rune('A' + random.IntN(3)))), Version: version(int64(round))})
				}
				call := time.Since(start)
				passed, err := handles[n%len(handles)].CompareAndSwap(f.ctx(), checks)
				back := time.Since(start)
				if !assert.NoError(f, err) {
					return
				}
				for i, c := range checks {
					histories[n] = append(histories[n], porcupine.Operation{ClientId: n, Input: input{c.Key, string(c.Content)},
						Output: passed[i], Call: int64(call), Return: int64(back)})
				}
			}
		})
	}
	callers.Wait()
	return slices.Concat(histories...)
}

// input is one check of the model.
type input struct {
	key     store.Key
	content string
}

// lastSeen is the dam as a sequential machine: per key the last content; a
// check passes when it differs, and is the last content from then on.
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

// readThenWrite is a deliberately broken dam: it compares by a read and writes
// whatever has happened since.
type readThenWrite struct {
	s     store.Store
	pause func()
}

func (b readThenWrite) CompareAndSwap(ctx context.Context, checks []store.Check) ([]bool, error) {
	keys := make([]store.Key, len(checks))
	for i, c := range checks {
		keys[i] = c.Key
	}
	rows, err := b.s.Rows(ctx, keys)
	if err != nil {
		return nil, err
	}
	b.pause()
	passed := make([]bool, len(checks))
	for i, r := range rows {
		passed[i] = string(r.Content) != string(checks[i].Content)
	}
	_, err = b.s.CompareAndSwap(ctx, checks)
	return passed, err
}
