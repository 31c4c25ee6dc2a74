package checks

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hooked is a store with something in front of its calls.
type hooked struct {
	real       store.CheckRows
	swaps      atomic.Int64
	beforeRead func(ctx context.Context, keys []store.Key) error
	beforeSwap func(ctx context.Context, rows []store.CheckRow) error
	afterSwap  func() error
}

func (h *hooked) CheckRows(ctx context.Context, keys []store.Key) ([]store.CheckRow, error) {
	if h.beforeRead != nil {
		if err := h.beforeRead(ctx, keys); err != nil {
			return nil, err
		}
	}
	return h.real.CheckRows(ctx, keys)
}

func (h *hooked) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	h.swaps.Add(1)
	if h.beforeSwap != nil {
		if err := h.beforeSwap(ctx, rows); err != nil {
			return nil, err
		}
	}
	swapped, err := h.real.SwapCheckRows(ctx, rows)
	if err == nil && h.afterSwap != nil {
		err = h.afterSwap()
	}
	return swapped, err
}

// fixture is a SQLite store and a Checker over it.
type fixture struct {
	*testing.T
	store   *sqlite.Store
	service Service
}

func newFixture(t *testing.T) *fixture {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	const name = "acme/crm@check"
	numbers, err := s.Services(t.Context(), []string{name})
	require.NoError(t, err)
	return &fixture{T: t, store: s, service: Service{Name: name, Number: numbers[name]}}
}

func (f *fixture) checker(o Options) *Checker {
	if o.Store == nil {
		o.Store = f.store
	}
	c := New(o)
	f.Cleanup(func() { c.Close(context.WithoutCancel(f.Context())) })
	return c
}

// blocked is a store whose first read waits: under is closed when it begins, and
// closing proceed lets it continue.
func (f *fixture) blocked() (h *hooked, under, proceed chan struct{}) {
	under, proceed = make(chan struct{}), make(chan struct{})
	var once sync.Once
	h = &hooked{real: f.store}
	h.beforeRead = func(context.Context, []store.Key) error {
		once.Do(func() {
			close(under)
			<-proceed
		})
		return nil
	}
	return h, under, proceed
}

// waits returns when so many requests of a Checker wait or are under way.
func (f *fixture) waits(c *Checker, n int) {
	f.Helper()
	require.Eventually(f, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting == n
	}, time.Minute, time.Millisecond)
}

// one asks for one entity.
func (f *fixture) one(c *Checker, entity, content string) Answer {
	f.Helper()
	results, err := c.Check(f.Context(), f.service, []Request{{Entity: entity, Content: Given(content)}})
	require.NoError(f, err)
	require.NoError(f, results[0].Err)
	return results[0].Value
}

func (f *fixture) confirm(c *Checker, entity string, v change.Version) {
	f.Helper()
	results, err := c.Confirm(f.Context(), f.service, []Confirmation{{entity, v}})
	require.NoError(f, err)
	require.NoError(f, results[0].Err)
	require.Equal(f, v, results[0].Value)
}

func TestCheckConfirmRelease(t *testing.T) {
	f := newFixture(t)
	registry := prometheus.NewRegistry()
	c := f.checker(Options{Metrics: NewMetrics(registry)})
	a := f.one(c, "e", "A")
	require.Equal(t, Pass, a.Decision)
	require.Equal(t, change.Key(f.service.Name, "e", a.Version, Given("A")), a.Key)
	require.True(t, f.one(c, "e", "A").Repeated)
	f.confirm(c, "e", a.Version)
	require.Equal(t, Duplicate, f.one(c, "e", "A").Decision)
	b := f.one(c, "e", "B")
	released, err := c.Release(t.Context(), f.service, []Failure{{"e", b.Version, Refused}, {"e", a.Version, Unknown}, {"other", 5, Unknown}})
	require.NoError(t, err)
	require.Equal(t, Released{Done: true, Known: true, Version: b.Version}, released[0].Value)
	require.Equal(t, Released{Version: b.Version}, released[1].Value)
	require.ErrorIs(t, released[2].Err, ErrUnknownVersion)
	require.Equal(t, Duplicate, f.one(c, "e", "A").Decision)
	confirmed, err := c.Confirm(t.Context(), f.service, []Confirmation{{"e", b.Version + 1}, {"e", a.Version}, {"", 1}})
	require.NoError(t, err)
	require.ErrorIs(t, confirmed[0].Err, ErrUnknownVersion)
	require.Equal(t, a.Version, confirmed[1].Value)
	require.ErrorIs(t, confirmed[2].Err, ErrEntity)
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "weir_checks_total" {
			for _, m := range family.GetMetric() {
				require.Equal(t, f.service.Name, m.GetLabel()[1].GetValue())
				counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"pass": 2, "repeated": 1, "duplicate": 2, "confirmed": 2, "released": 1, "kept": 1}, counts)
}

// A batch is answered in its order; several requests of one entity are decided
// one after the other.
func TestOneBatch(t *testing.T) {
	f := newFixture(t)
	c := f.checker(Options{})
	var requests []Request
	for i, content := range []string{"A", "B", "A", "A", "B"} {
		for n := range 50 {
			requests = append(requests, Request{Entity: fmt.Sprint("e", n), Content: Given(content), EventID: fmt.Sprint(i)})
		}
	}
	requests = append(requests, Request{Entity: "a\x00b"}, Request{Entity: "\xff"}, Request{})
	results, err := c.Check(t.Context(), f.service, requests)
	require.NoError(t, err)
	require.Len(t, results, len(requests))
	versions := map[string]change.Version{}
	for i, r := range results[:250] {
		require.NoError(t, r.Err)
		require.Equal(t, Pass, r.Value.Decision)
		require.Equal(t, i/50 == 3, r.Value.Repeated)
		if e := requests[i].Entity; r.Value.Repeated {
			require.Equal(t, versions[e], r.Value.Version)
		} else {
			require.Greater(t, r.Value.Version, versions[e])
			versions[e] = r.Value.Version
		}
	}
	for _, r := range results[250:] {
		require.ErrorIs(t, r.Err, ErrEntity)
	}
	results, err = c.Check(t.Context(), f.service, nil)
	require.NoError(t, err)
	require.Empty(t, results)
}

// Requests that come while a transaction is under way share the next one, in
// bounds; what changes nothing is not written.
func TestGroupCommit(t *testing.T) {
	f := newFixture(t)
	under, proceed := make(chan struct{}), make(chan struct{})
	var sizes []int
	h := &hooked{real: f.store}
	h.beforeRead = func(_ context.Context, keys []store.Key) error {
		if len(sizes) == 0 {
			close(under)
			<-proceed
		}
		sizes = append(sizes, len(keys))
		return nil
	}
	c := f.checker(Options{Store: h, MaxBatch: 40})
	var callers sync.WaitGroup
	callers.Go(func() { f.one(c, "first", "A") })
	<-under
	for n := range 100 {
		callers.Go(func() { f.one(c, fmt.Sprint("e", n), "A") })
	}
	f.waits(c, 101)
	close(proceed)
	callers.Wait()
	require.Equal(t, []int{1, 40, 40, 20}, sizes)
	require.EqualValues(t, 4, h.swaps.Load())

	writes := func(what func()) int64 {
		before := h.swaps.Load()
		what()
		return h.swaps.Load() - before
	}
	var v change.Version
	require.Zero(t, writes(func() { v = f.one(c, "e1", "A").Version }), "a pass once more")
	require.EqualValues(t, 1, writes(func() { f.confirm(c, "e1", v) }))
	require.Zero(t, writes(func() { f.confirm(c, "e1", v) }))
	require.Zero(t, writes(func() { require.Equal(t, Duplicate, f.one(c, "e1", "A").Decision) }))
	require.EqualValues(t, 1, writes(func() { f.one(c, "e1", "B") }))
	require.EqualValues(t, 1, writes(func() { f.one(c, "e1", "B") }), "that it was given twice is remembered, for a release")
	require.Zero(t, writes(func() { f.one(c, "e1", "B") }))
}

// A row that another process changed between read and swap is decided again, on
// the present row; the others of its transaction are not.
func TestLostSwap(t *testing.T) {
	f := newFixture(t)
	elsewhere := f.checker(Options{})
	first := f.one(elsewhere, "hot", "A")
	f.confirm(elsewhere, "hot", first.Version)
	h := &hooked{real: f.store}
	h.beforeSwap = func(_ context.Context, rows []store.CheckRow) error {
		if len(rows) == 3 { // the first attempt
			v := f.one(elsewhere, "hot", "B").Version
			f.confirm(elsewhere, "hot", v)
		}
		return nil
	}
	c := f.checker(Options{Store: h})
	var requests []Request
	for _, e := range []string{"cold", "hot", "hot", "warm"} {
		requests = append(requests, Request{Entity: e, Content: Given("B")})
	}
	requests[2].Content = Given("C")
	results, err := c.Check(t.Context(), f.service, requests)
	require.NoError(t, err)
	var got []Decision
	for _, r := range results {
		require.NoError(t, r.Err)
		got = append(got, r.Value.Decision)
	}
	require.Equal(t, []Decision{Pass, Duplicate, Pass, Pass}, got, "B passed elsewhere meanwhile")
	require.EqualValues(t, 2, h.swaps.Load())
	require.True(t, f.one(c, "hot", "C").Repeated)
}

// A request that always loses ends, and says that nothing was decided.
func TestContended(t *testing.T) {
	f := newFixture(t)
	elsewhere := f.checker(Options{})
	n := 0
	h := &hooked{real: f.store}
	h.beforeSwap = func(context.Context, []store.CheckRow) error {
		n++
		f.one(elsewhere, "hot", fmt.Sprint("other ", n))
		return nil
	}
	c := f.checker(Options{Store: h})
	results, err := c.Check(t.Context(), f.service, []Request{{Entity: "hot", Content: Given("mine")}})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, ErrContended)
	require.Equal(t, maxAttempts, n)
	h.beforeSwap = nil
	require.False(t, f.one(c, "hot", "mine").Repeated, "nothing was decided")
}

// A caller whose context ends is released at once; its request is not
// decided when its transaction has not begun.
func TestCallerGoesAway(t *testing.T) {
	f := newFixture(t)
	h, under, proceed := f.blocked()
	c := f.checker(Options{Store: h})
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	ask := func(entity string) chan Result[Answer] {
		out := make(chan Result[Answer], 1)
		go func() {
			results, err := c.Check(ctx, f.service, []Request{{Entity: entity, Content: Given("A")}})
			assert.NoError(t, err)
			out <- results[0]
		}()
		return out
	}
	running := ask("running")
	<-under
	waiting := ask("waiting")
	f.waits(c, 2)
	cancel(gone)
	require.ErrorIs(t, (<-running).Err, gone, "while the transaction is under way")
	require.ErrorIs(t, (<-waiting).Err, gone)
	close(proceed)
	require.True(t, f.one(c, "running", "A").Repeated, "it was decided all the same")
	require.False(t, f.one(c, "waiting", "A").Repeated, "it was not")
}

// An error of the store reaches those whose rows it concerns, with its class,
// and the next request is served.
func TestStoreFails(t *testing.T) {
	f := newFixture(t)
	down := store.WithClass(errors.New("down"), store.Retry)
	open := store.WithClass(errors.New("cut off"), store.Unknown)
	h := &hooked{real: f.store}
	c := f.checker(Options{Store: h})
	v := f.one(c, "confirmed", "A").Version
	f.confirm(c, "confirmed", v)
	ask := func() []Result[Answer] {
		results, err := c.Check(t.Context(), f.service, []Request{{Entity: "confirmed", Content: Given("A")}, {Entity: "new", Content: Given("A")}})
		require.NoError(t, err)
		return results
	}
	h.beforeRead = func(context.Context, []store.Key) error { return down }
	for _, r := range ask() {
		require.ErrorIs(t, r.Err, down)
		require.Equal(t, store.Retry, store.ClassOf(r.Err))
	}
	h.beforeRead = nil
	h.afterSwap = func() error { return open }
	results := ask()
	require.Equal(t, Duplicate, results[0].Value.Decision, "it was only read")
	require.Equal(t, store.Unknown, store.ClassOf(results[1].Err))
	h.afterSwap = nil
	require.True(t, ask()[1].Value.Repeated, "it had been written")
}

func TestOverloadAndClose(t *testing.T) {
	f := newFixture(t)
	h, under, proceed := f.blocked()
	c := f.checker(Options{Store: h, MaxWaiting: 12})
	outcomes := make(chan error, 4)
	others := f.service
	others.Name, others.Number = "another/orders@check", f.service.Number+1
	askFor := func(s Service, entity string) {
		results, err := c.Check(t.Context(), s, []Request{{Entity: entity, Content: Given("A")}})
		if err == nil {
			err = results[0].Err
		}
		outcomes <- err
	}
	ask := func(entity string) { askFor(f.service, entity) }
	go ask("running")
	<-under
	go ask("waiting")
	go ask("waiting too")
	f.waits(c, 3)
	_, err := c.Check(t.Context(), f.service, []Request{{Entity: "more", Content: Given("A")}})
	require.ErrorIs(t, err, ErrOverloaded, "a customer has a quarter")
	go askFor(others, "theirs")
	f.waits(c, 4)
	closed := make(chan struct{})
	go func() {
		c.Close(context.Background())
		close(closed)
	}()
	require.Eventually(t, func() bool {
		_, err := c.Check(t.Context(), f.service, nil)
		return errors.Is(err, ErrClosed)
	}, time.Minute, time.Millisecond)
	close(proceed)
	<-closed
	ended := 0
	for range 4 {
		if err := <-outcomes; err == nil {
			ended++
		} else {
			require.ErrorIs(t, err, ErrClosed)
		}
	}
	require.Equal(t, 1, ended, "what is under way ends")
	require.Empty(t, c.shares)
	c.Close(context.Background())
}

// Close cancels a transaction that does not end in time.
func TestCloseInTime(t *testing.T) {
	f := newFixture(t)
	under := make(chan struct{})
	h := &hooked{real: f.store}
	h.beforeRead = func(ctx context.Context, _ []store.Key) error {
		close(under)
		<-ctx.Done()
		return ctx.Err()
	}
	c := f.checker(Options{Store: h})
	outcome := make(chan error)
	go func() {
		results, err := c.Check(context.Background(), f.service, []Request{{Entity: "e", Content: Given("A")}})
		assert.NoError(t, err)
		outcome <- results[0].Err
	}()
	<-under
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c.Close(over)
	require.ErrorIs(t, <-outcome, context.Canceled)
}

// A customer with a long queue leaves each other one a place in the next transaction.
func TestCustomersAreTakenInTurn(t *testing.T) {
	c := &Checker{options: Options{MaxWaiting: 1000}, queues: map[string][]*item{}, shares: map[string]int{}, wake: make(chan struct{}, 1)}
	ask := func(customer string, items int) {
		all := make([]*item, items)
		for i := range all {
			all[i] = &item{customer: customer, attempts: i}
		}
		require.NoError(t, c.enqueue(customer, all))
	}
	taken := func(n int) (order []string) {
		for _, it := range c.take(n) {
			order = append(order, fmt.Sprint(it.customer, it.attempts))
		}
		return order
	}
	ask("flooder", 200)
	require.Equal(t, []string{"flooder0", "flooder1"}, taken(2))
	ask("a", 2)
	ask("b", 1)
	require.Equal(t, []string{"flooder2", "a0", "b0", "flooder3", "a1", "flooder4"}, taken(6))
	require.Len(t, taken(1000), 195)
	require.Empty(t, c.queues)
}
