//go:build verify

package linearizable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// checkHistory is what all processes of a run saw.
type checkHistory struct {
	mu         sync.Mutex
	calls      map[[2]int64]porcupine.Operation // under way, by process and operation
	operations []porcupine.Operation
	entries    int
	cut        chan struct{} // room for one: it is time to cut a connection
	victim     int64         // entries of process 0 until kill is closed
	kill       chan struct{}
}

// add takes an entry of a process.
func (h *checkHistory) add(process int, e checkEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := [2]int64{int64(process), e.Operation}
	switch e.Kind {
	case began:
		h.calls[key] = porcupine.Operation{ClientId: process<<16 | e.Client, Input: e.Ask, Call: e.Tick, Output: reply{Open: true}, Return: never}
	case ended:
		o := h.calls[key]
		o.Output, o.Return = e.Reply, e.Tick
		h.operations = append(h.operations, o)
		delete(h.calls, key)
	case nothing:
		delete(h.calls, key)
	}
	if process == 0 {
		if h.victim--; h.victim == 0 {
			close(h.kill)
		}
	}
	if h.entries++; h.entries%250 == 0 {
		select {
		case h.cut <- struct{}{}:
		default:
		}
	}
}

// runChecks lets four processes check, kills one of them in the middle of its
// calls when kill is set, and returns what all of them saw, with what stayed open.
func runChecks(t *testing.T, base checkSettings, kill bool) (h *checkHistory, open, cuts int) {
	t.Helper()
	base.Seed = rand.Uint64()
	t.Logf("seed %d", base.Seed)
	if base.File == "" {
		base.URL = servers.Postgres(t) + fmt.Sprintf("&application_name=weir-linearizable-%x", base.Seed)
	}
	base.Clock = filepath.Join(t.TempDir(), "clock")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := base.open(ctx)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(ctx))
	numbers, err := s.Services(ctx, []string{"acme/crm@check"})
	require.NoError(t, err)
	base.Service = numbers["acme/crm@check"]

	h = &checkHistory{calls: map[[2]int64]porcupine.Operation{}, cut: make(chan struct{}, 1), kill: make(chan struct{}), victim: 100}
	const together = 4
	start := func(n, calls, together int) *child {
		one := base
		one.Process, one.Calls, one.Together = n, calls, together
		return launch(ctx, t, checkVariable, one, func(e checkEntry) { h.add(n, e) })
	}
	calls := base.Calls
	if kill {
		calls = 1 << 30 // it would go on for ever
	}
	children := []*child{start(0, calls, together)}
	for n := 1; n < together; n++ {
		children = append(children, start(n, base.Calls, together))
	}
	due := []chan struct{}{h.kill}
	var cutting *cutter
	if base.URL != "" && kill {
		cutting = cutConnections(ctx, base.URL, h.cut)
		due = append(due, cutting.severed) // before anything is over
	}
	if kill {
		for _, d := range due {
			select {
			case <-d:
			case <-ctx.Done():
				t.Fatal("the victim makes no calls, or no connection could be cut")
			}
		}
		children[0].killed(t)
		children[0] = start(len(children), base.Calls, 0)
	}
	for _, c := range children {
		assert.NoError(t, c.wait())
	}
	if cutting != nil {
		cuts = cutting.stop()
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, o := range h.calls {
		h.operations = append(h.operations, o)
	}
	return h, len(h.calls), cuts
}

// Every answer that any process gave is explained by one order of the requests,
// through any kills and cuts in between.
func TestI3ChecksAreLinearizableAcrossProcesses(t *testing.T) {
	for _, backend := range []string{"PostgreSQL", "SQLite"} {
		t.Run(backend, func(t *testing.T) {
			base := checkSettings{Clients: 3, Calls: 60, Writers: 1}
			if backend == "SQLite" {
				base.File = filepath.Join(t.TempDir(), "state.db")
			}
			h, open, cuts := runChecks(t, base, true)
			began := time.Now()
			result, info := porcupine.CheckOperationsVerbose(checkModel, h.operations, searching)
			t.Logf("%d operations, %d of them open, %d connections cut; searched for %v", len(h.operations), open, cuts, time.Since(began).Round(time.Millisecond))
			require.Equal(t, porcupine.Ok, result, "%v", failing(info))
			counts := map[string]int{}
			for _, o := range h.operations {
				in, out := o.Input.(ask), o.Output.(reply)
				switch {
				case out.Open:
				case in.Kind == asks && out.Repeated:
					counts["repeated"]++
				case in.Kind == asks:
					counts[out.Decision]++
				case in.Kind == gives:
					counts[fmt.Sprintf("release done %v known %v", out.Done, out.Known)]++
				default:
					counts[fmt.Sprintf("%s unheard %v", in.Kind, out.Unheard)]++
				}
			}
			t.Log(counts)
			for _, what := range []string{"pass", "repeated", "duplicate", "stale", "confirm unheard false", "confirm unheard true", "release done true known false"} {
				require.Positive(t, counts[what], what)
			}
			require.Positive(t, open, "calls were cut off by the kill")
			if backend == "PostgreSQL" {
				require.Positive(t, cuts)
			}
		})
	}
}

// The checker's own test: it refuses a store that swaps without regard to other writes
// since the read.
func TestChecksWithoutCompareAreFound(t *testing.T) {
	const rounds = 10
	for _, backend := range []string{"PostgreSQL", "SQLite"} {
		t.Run(backend, func(t *testing.T) {
			for round := range rounds {
				base := checkSettings{Clients: 4, Calls: 12, Writers: 1, Blind: true}
				if backend == "SQLite" {
					base.File = filepath.Join(t.TempDir(), fmt.Sprint(round, ".db"))
				}
				h, _, _ := runChecks(t, base, false)
				if porcupine.CheckOperationsTimeout(checkModel, h.operations, searching/6) == porcupine.Illegal {
					t.Logf("found in round %d", round+1)
					return
				}
			}
			t.Errorf("not found in %d rounds", rounds)
		})
	}
}

// failing returns how far the longest explanation of each entity comes that is
// not complete.
func failing(info porcupine.LinearizationInfo) []string {
	var lines []string
	for _, entity := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, l := range entity {
			if len(l) > len(longest) {
				longest = l
			}
		}
		d := desk{}
		for _, o := range longest {
			_, d = d.step(o.Input.(ask), o.Output.(reply))
		}
		lines = append(lines, fmt.Sprintf("after %d operations: %+v", len(longest), d))
	}
	return lines
}
