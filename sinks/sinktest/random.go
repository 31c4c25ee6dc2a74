package sinktest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
)

// step is one thing that happens in a random sequence: optionally a new sink
// (a crash), then one Write: some of the last batches are redelivered (all up to the
// newest, as after a rebalance, or fewer, as from a consumer that lost its
// partition and does not know yet), and new changes behind them.
type step struct {
	Crash  bool
	Again  int   // how many batches are redelivered
	Skip   int   // how many of the last batches are not redelivered
	Writes []put // new changes
}

// put is one new change: of one of few entities, with one of few texts.
type put struct {
	Entity  int
	Retract bool
	Text    int
}

func sequences() *rapid.Generator[[]step] {
	puts := rapid.Custom(func(t *rapid.T) put {
		return put{
			Entity:  rapid.IntRange(0, 2).Draw(t, "entity"),
			Retract: rapid.IntRange(0, 3).Draw(t, "retract") == 0,
			Text:    rapid.IntRange(0, 2).Draw(t, "text"),
		}
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Crash:  rapid.IntRange(0, 3).Draw(t, "crash") == 0,
			Again:  rapid.IntRange(0, 3).Draw(t, "again"),
			Skip:   rapid.IntRange(0, 2).Draw(t, "skip"),
			Writes: rapid.SliceOfN(puts, 0, 6).Draw(t, "writes"),
		}
	}), 1, 6)
}

func checkRandom(t testing.TB, s *suite) {
	f := s.open(t)
	rapid.Check(t, func(rt *rapid.T) {
		f.model = newModel(s.Kind)
		diffs := f.play(sequences().Draw(rt, "sequence"))
		require.Empty(rt, diffs, "the target does not hold what was written")
	})
}

// play runs a sequence over entities of its own and returns the faults after it.
func (f *fixture) play(sequence []step) []string {
	entities := []string{f.entity("a"), f.entity("b"), f.entity("c")}
	var sent [][]change.Change
	for _, st := range sequence {
		if st.Crash {
			f.reopen()
		}
		var batch, fresh []change.Change
		until := max(0, len(sent)-st.Skip)
		for _, old := range sent[max(0, until-st.Again):until] {
			batch = append(batch, old...)
		}
		for _, p := range st.Writes {
			c := f.retract(entities[p.Entity])
			if !p.Retract {
				c = f.upsert(c.Entity, strings.Repeat("t", p.Text))
			}
			fresh = append(fresh, c)
		}
		sent = append(sent, fresh)
		f.write(append(batch, fresh...)...)
	}
	return f.model.differences(f.t, &f.Target)
}
