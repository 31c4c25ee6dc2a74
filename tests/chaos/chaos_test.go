//go:build verify

package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// I1 to I5, I8, I9, I11: with any process or server killed, paused, restarted or cut off, at any
// time, every sink ends as the model says, without a dead letter, and the survivors
// resume by themselves.
func TestChaos(t *testing.T) {
	all := plan(*seed, *rounds)
	t.Logf("seed %d; again: go test ./tests/chaos -run TestChaos -chaos.rounds %d -chaos.seed %d", *seed, *rounds, *seed)
	for i, faults := range all {
		t.Logf("round %d: %v", i+1, faults)
	}
	w := newWorld(t, *seed)
	w.processes = []*harness.Process{w.run(), w.run()}
	for _, pr := range w.processes {
		pr.Ready(200)
	}
	for i, faults := range all {
		if *only != 0 && *only != i+1 {
			continue
		}
		t.Logf("%s round %d", time.Now().Format(time.TimeOnly), i+1)
		w.round(faults)
	}
	w.stop(w.processes...)
	require.NoError(t, w.cluster.Checks(w.hook))
}

// round breaks things under load, heals them and looks what became of it.
func (w *world) round(faults []fault) {
	stop := w.load.start(w.t.Context())
	done := false
	defer func() {
		if !done { // the test failed
			_ = stop()
		}
	}()
	type action struct {
		at int
		do func()
	}
	var script []action
	for _, f := range faults {
		begin, end := w.acts(f)
		script = append(script, action{f.at, begin})
		if end != nil {
			script = append(script, action{f.until, end})
		}
	}
	slices.SortStableFunc(script, func(a, b action) int { return a.at - b.at })
	for _, a := range script {
		w.load.reach(w.t, a.at)
		w.supervise()
		a.do()
	}
	w.load.reach(w.t, steps)
	done = true
	require.NoError(w.t, stop())
	w.settle()
}

// acts returns what begins a fault, and what ends it if it has a length.
func (w *world) acts(f fault) (begin, end func()) {
	server, net := w.servers[f.target], w.nets[f.target]
	under := func(bad harness.Weather) (func(), func()) {
		return func() { net.Set(bad) }, func() { net.Set(harness.Weather{}) }
	}
	switch f.kind {
	case killProcess:
		return func() { w.killProcess(f.target) }, nil
	case zombie:
		return func() { w.zombie(f.target) }, nil
	case rolling:
		return w.rolling, nil
	case join:
		return w.join, nil
	case flush:
		return w.flush, nil
	case quitServer:
		return server.Quit, server.Start
	case killServer:
		if f.target == kafkaServer { // the load stands still meanwhile
			return func() {
				server.Kill()
				server.Start()
			}, nil
		}
		return server.Kill, server.Start
	case cutNet:
		return under(harness.Weather{Cut: true})
	case delayNet:
		return under(harness.Weather{Latency: 100 * time.Millisecond})
	case slowNet:
		return under(harness.Weather{Rate: 32 << 10})
	case halfOpenNet:
		return under(harness.Weather{HalfOpen: true})
	}
	require.FailNow(w.t, "unknown fault", f.kind)
	return nil, nil
}

func (w *world) number(target string) int {
	n, err := strconv.Atoi(target)
	require.NoError(w.t, err)
	return n
}

// some lets the load go on for some steps.
func (w *world) some(n int) {
	w.load.mu.Lock()
	now := w.load.step
	w.load.mu.Unlock()
	w.load.reach(w.t, now+n)
}

func (w *world) killProcess(target string) {
	n := w.number(target)
	w.processes[n].Kill()
	w.some(5)
	w.processes[n] = w.run()
}

// zombie pauses a process until Kafka has given its work to the other, which
// then works for a while, and lets it go on: it still believes that all is its.
func (w *world) zombie(target string) {
	w.supervise()
	pr := w.processes[w.number(target)]
	var before map[string]int
	w.eventually("who is in which group", func() (err error) { // Kafka may have started a moment ago
		before, err = w.members()
		return err
	})
	require.NoError(w.t, pr.Cmd.Process.Signal(syscall.SIGSTOP))
	w.eventually("the session of the paused process ends", func() error {
		now, err := w.members()
		if err != nil {
			return err
		}
		for group, n := range before {
			if n > 1 && now[group] >= n {
				return fmt.Errorf("%s still has %d members", group, n)
			}
		}
		return nil
	})
	w.some(10)
	require.NoError(w.t, pr.Cmd.Process.Signal(syscall.SIGCONT))
}

// rolling replaces one process after the other.
func (w *world) rolling() {
	for n, pr := range w.processes {
		w.stop(pr)
		w.processes[n] = w.run()
		w.some(5)
	}
}

// join lets a third process take part for a while.
func (w *world) join() {
	third := w.run()
	w.some(20)
	w.stop(third)
}

func (w *world) flush() {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{w.servers[valkeyServer].Address}, DisableCache: true})
	require.NoError(w.t, err)
	defer client.Close()
	require.NoError(w.t, client.Do(w.t.Context(), client.B().Flushall().Build()).Error())
}
