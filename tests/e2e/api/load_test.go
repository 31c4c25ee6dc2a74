//go:build verify

package api

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

var (
	loadFor  = flag.Duration("api.load", 15*time.Second, "how long TestLoad sends requests")
	loadRate = flag.Int("api.rate", 80, "requests per second of TestLoad")
)

// senders bounds the requests under way.
const senders = 32

// load is what TestLoad's clients share.
type load struct {
	t testing.TB

	mu     sync.Mutex
	doors  []string // addresses that take requests; guarded by mu
	states []string // of every key that was accepted; guarded by mu

	hungUp, failed, retried, repeated atomic.Int64
}

func (l *load) door(r *rand.Rand) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doors[r.IntN(len(l.doors))]
}

// job makes the n-th request and tells the states that it writes: an event with
// an id or under a key, or a batch of either.
func job(n int, r *rand.Rand) (q request, states []string) {
	entity := func() string { return fmt.Sprint("E", r.IntN(40)) }
	state := fmt.Sprint("s", n)
	switch kind := r.IntN(4); kind {
	case 0:
		return order(fmt.Sprint("e", n), entity(), state), []string{state}
	case 1:
		return keyed(fmt.Sprint("k", n), "plain "+entity(), state), []string{state}
	default:
		var rows []string
		for i := range 1 + r.IntN(5) {
			states = append(states, fmt.Sprint(state, "-", i))
			if kind == 2 {
				rows = append(rows, order(fmt.Sprint("e", n, "-", i), entity(), states[i]).body)
			} else {
				rows = append(rows, keyed("", "plain "+entity(), states[i]).body)
			}
		}
		q = request{path: "orders/events:batch", body: "[" + strings.Join(rows, ",") + "]"}
		if kind == 3 {
			q.path, q.key = "plain/events:batch", fmt.Sprint("b", n)
		}
		return q, states
	}
}

// deliver sends one request as a good client does: again until it is answered,
// after any hang-up. Some clients hang up, and some repeat accepted
// requests.
func (l *load) deliver(ctx context.Context, n int) {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	q, states := job(n, r)
	for ctx.Err() == nil {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if r.IntN(10) == 0 {
			attempt, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(15_000))*time.Microsecond)
			l.hungUp.Add(1)
		}
		a, err := try(attempt, l.door(r), q)
		cancel()
		switch {
		case err != nil:
			l.failed.Add(1)
		case a.status == 202:
			l.mu.Lock()
			l.states = append(l.states, states...)
			l.mu.Unlock()
			if r.IntN(10) == 0 {
				l.repeated.Add(1)
				if again, err := try(ctx, l.door(r), q); err == nil && again.status != 202 && again.status != 503 {
					l.t.Errorf("a repetition of %s: %d %s", q.body, again.status, again.body)
				}
			}
			return
		case a.status == 503:
			l.retried.Add(1)
		default:
			l.t.Errorf("%s: %d %s", q.body, a.status, a.body)
			return
		}
		pause := time.NewTimer(time.Duration(20+r.IntN(200)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	l.t.Errorf("%s was not accepted in time", q.body)
}

// Requests at a steady rate, while clients hang up at random moments and
// processes are killed: in the end the customer has one effect of each key.
func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("sends requests for a while, with servers")
	}
	for _, on := range []string{embedded, onServers} {
		t.Run(on, func(t *testing.T) {
			w := newWorld(t, on, "30d").start()
			l := &load{t: t}
			known := func() {
				var addresses []string
				for _, in := range w.ins {
					addresses = append(addresses, in.Address("ingest"))
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.doors = addresses
			}
			known()

			ctx, cancel := context.WithTimeout(t.Context(), *loadFor+2*harness.Patience)
			defer cancel()
			numbers := make(chan int, senders)
			var all sync.WaitGroup
			for range senders {
				all.Go(func() {
					for n := range numbers {
						l.deliver(ctx, n)
					}
				})
			}
			sent := make(chan int)
			stop := make(chan struct{})
			go func() {
				tick := time.NewTicker(time.Second / time.Duration(*loadRate))
				defer tick.Stop()
				defer close(numbers)
				n := 0
				for {
					select {
					case <-tick.C:
						numbers <- n
						n++
					case <-stop:
						sent <- n
						return
					}
				}
			}()

			random := rand.New(rand.NewPCG(uint64(len(on)), 2))
			kills := 0
			end := time.NewTimer(*loadFor)
			for going := true; going; {
				next := time.NewTimer(time.Duration(1500+random.IntN(3000)) * time.Millisecond)
				select {
				case <-end.C:
					going = false
				case <-next.C:
					kills++
					w.killOne(random)
					known()
				}
				next.Stop()
			}
			close(stop)
			requests := <-sent
			all.Wait()
			t.Logf("%d requests, %d keys; %d processes killed, %d clients hung up, %d attempts without an answer, %d told to come again, %d sent once more",
				requests, len(l.states), kills, l.hungUp.Load(), l.failed.Load(), l.retried.Load(), l.repeated.Load())
			require.Positive(t, kills)
			require.Positive(t, l.hungUp.Load())
			require.Greater(t, len(l.states), requests)
			onceEach(t, w.states(""), l.states)
		})
	}
}

// killOne kills a process at random and starts another one in its place.
func (w *world) killOne(r *rand.Rand) {
	w.t.Helper()
	at := r.IntN(len(w.ins) + 1)
	if at == len(w.ins) && w.on == onServers {
		w.all.Kill()
		w.all = w.p.Start("run --role work")
		return
	}
	at %= len(w.ins)
	w.ins[at].Kill()
	w.ins[at] = w.door()
	if w.on == embedded {
		w.all = w.ins[at]
	}
}
