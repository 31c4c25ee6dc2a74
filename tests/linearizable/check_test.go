package linearizable

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// searching bounds the search of porcupine.
const searching = time.Minute

// collect makes one history of the logs of processes and of the rest in
// the log of s: the frame of a commit of unknown outcome is not handed over.
func collect(t *testing.T, s store.Store, logs [][]entry, inbox [][]input) history {
	t.Helper()
	var all []store.Partition
	for n := range inbox {
		all = append(all, store.Partition{Generation: generation, Number: int32(n)})
	}
	found, err := s.TakeOver(t.Context(), all, store.Token{1})
	require.NoError(t, err)
	var rest []change.Change
	for n, f := range found {
		require.EqualValues(t, len(inbox[n]), f.NextOffset, "the inbox is decided")
		tail, err := s.Frames(t.Context(), int32(n), 0, math.MaxInt32)
		for ; err == nil && len(tail.Frames) > 0; tail, err = s.Frames(t.Context(), int32(n), tail.Frames[len(tail.Frames)-1].To, math.MaxInt32) {
			for _, frame := range tail.Frames {
				changes, err := changesOf(frame.Body)
				require.NoError(t, err)
				rest = append(rest, changes...)
			}
		}
		require.NoError(t, err)
	}
	h, err := assemble(logs, inbox, rest)
	require.NoError(t, err)
	return h
}

// requireLinearizable asks porcupine.
func requireLinearizable(t *testing.T, h history) {
	t.Helper()
	require.Empty(t, h.contradictions)
	start := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, h.operations, searching)
	t.Logf("%d operations, %d of them open; %d decisions fenced, %d changes; searched for %v",
		len(h.operations), h.open, h.fenced, h.passed, time.Since(start).Round(time.Millisecond))
	if result != porcupine.Ok {
		explain(t, info)
	}
	require.Equal(t, porcupine.Ok, result)
	covered := effects(info)
	t.Log(covered)
	for _, k := range []kind{event, refuse, reset, redecide, takePlace, swapPlace} {
		require.Positive(t, covered[effect{k, true}], k)
	}
	for _, k := range []kind{event, refuse, swapPlace} {
		require.Positive(t, covered[effect{k, false}], "%s without effect", k)
	}
}

// effect reports whether an operation of a kind changed the dam row, or a token.
type effect struct {
	kind      kind
	effective bool
}

// effects counts them along the order that porcupine found.
func effects(info porcupine.LinearizationInfo) map[effect]int {
	counts := map[effect]int{}
	for _, entity := range info.PartialLinearizationsOperations() {
		var s state
		for _, o := range entity[0] {
			in := o.Input.(input)
			_, next := s.step(in, o.Output.(output))
			counts[effect{in.Kind, next.row != s.row || next.token != s.token}]++
			s = next
		}
	}
	return counts
}

// explain shows how far the longest explanation of each entity comes.
func explain(t *testing.T, info porcupine.LinearizationInfo) {
	t.Helper()
	for _, entity := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, l := range entity {
			if len(l) > len(longest) {
				longest = l
			}
		}
		for _, o := range longest[max(0, len(longest)-10):] {
			t.Logf("%s %d…%d %s", o.Input.(input).Entity, o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
		}
	}
}
