package operate_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/store/storetest"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	aService = "acme/all@out"
	zService = "zest/all@log"
	source   = "events"
)

// memoryLog is an inbox with one partition, which refuses appends after refuse calls.
type memoryLog struct {
	mu      sync.Mutex
	records []transport.Scanned
	calls   int
	refuse  int // 0: never
	most    int // bytes of key, value and headers; 0: any
	before  func(call int)
}

var errAway = errors.New("the cluster is away")

func (l *memoryLog) Append(_ context.Context, records []transport.Record) error {
	l.mu.Lock()
	l.calls++
	call, before := l.calls, l.before
	l.mu.Unlock()
	if before != nil {
		before(call)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse > 0 && l.calls > l.refuse {
		return errAway
	}
	for _, r := range records {
		if n := len(r.Key) + len(r.Value) + len(r.Headers[0].Value); l.most > 0 && n > l.most {
			return fmt.Errorf("a record of %d bytes: %w", n, transport.ErrTooLarge)
		}
	}
	for _, r := range records {
		l.records = append(l.records, transport.Scanned{Received: transport.Received{
			Key: r.Key, Value: r.Value, Headers: r.Headers, Offset: int64(len(l.records)), Time: time.Now(),
		}})
	}
	return nil
}

func (l *memoryLog) Offsets(context.Context, string) (start, end map[int32]int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[int32]int64{0: 0}, map[int32]int64{0: int64(len(l.records))}, nil
}

func (l *memoryLog) OffsetsAt(_ context.Context, _ string, at time.Time) (map[int32]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.records, func(r transport.Scanned) bool { return !r.Time.Before(at) })
	if i < 0 {
		i = len(l.records)
	}
	return map[int32]int64{0: int64(i)}, nil
}

func (l *memoryLog) Scan(_ context.Context, _ string, from, to map[int32]int64, f func(transport.Scanned) error) error {
	l.mu.Lock()
	records := slices.Clone(l.records[from[0]:to[0]])
	l.mu.Unlock()
	for _, r := range records {
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// decoded returns the records of the log.
func (l *memoryLog) decoded(t require.TestingT) []change.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []change.Record
	for _, r := range l.records {
		rec, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		require.NoError(t, err)
		all = append(all, rec)
	}
	return all
}

// asked counts the control records per entity.
func (l *memoryLog) asked(t require.TestingT) map[string]int {
	n := map[string]int{}
	for _, r := range l.decoded(t) {
		if r.Control != nil {
			n[r.Entity]++
		}
	}
	return n
}

// newEnv makes an environment over a fresh SQLite file and a log in memory.
func newEnv(t testing.TB) (*operate.Env, *memoryLog) {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(context.Background()))
	revision, err := s.Activate(context.Background(), []byte("now"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	numbers, err := s.Services(context.Background(), []string{aService, zService})
	require.NoError(t, err)
	m := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: source}}})
	plan := &decide.Plan{Merge: m, Fingerprint: []byte("now"), Revision: revision.Number, MaxChange: 1 << 20}
	for i, name := range []string{aService, zService} {
		p, err := projections.Compile(projections.Spec{Customer: name[:4], Name: "all", Fields: []projections.Field{{Out: "id", Path: "id"}}})
		require.NoError(t, err)
		plan.Projections = append(plan.Projections, p)
		plan.Services = append(plan.Services, decide.Service{Name: name, Number: numbers[name], Projection: i})
	}
	require.NoError(t, plan.Prepare())
	log := &memoryLog{}
	return &operate.Env{
		Store: s, Plan: plan, Inbox: store.Inbox{Generation: 1, Topic: "inbox"}, Append: log, Log: log, Actor: "me@here",
		Shape: func(name string) (ingest.Extractor, error) {
			rules, err := stripper.Compile(nil)
			return ingest.Extractor{Source: name, Entity: ingest.Locator{Path: "id"}, Strip: rules, MaxEvent: 1000, MaxEntity: 100}, err
		},
		IsLog: func(service string) bool { return service == zService },
	}, log
}

// stock puts entities into the store, with dam rows for one service.
func stock(t testing.TB, e *operate.Env, fingerprint string, ids ...string) {
	t.Helper()
	var out store.Outcome
	a, _ := e.Plan.Service(aService)
	stamp := []byte(fingerprint)
	if fingerprint == string(e.Plan.Fingerprint) {
		stamp = e.Plan.Stamp()
	}
	for _, id := range ids {
		out.Entities = append(out.Entities, store.Entity{ID: id, Docs: []byte(`{"events":{"id":"x"}}`), Fingerprint: stamp,
			States: storetest.StatesOf(store.Row{Key: store.Key{Service: a.Number, Entity: id}, Content: change.Retracted(), Version: 1})})
	}
	err := e.Store.Decide(context.Background(), store.Decision{Revision: e.Plan.Revision}, func(store.Loaded) (store.Outcome, error) { return out, nil })
	require.NoError(t, err)
}

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("e-%05d", i)
	}
	return all
}

// The mistake that this catches: a wait that is longer than a duration can be was none.
func TestTheSlowestRateIsARate(t *testing.T) {
	e, log := newEnv(t)
	stock(t, e, "old", ids(3)...)
	ctx, cancel := context.WithCancel(t.Context())
	log.before = func(int) { time.AfterFunc(100*time.Millisecond, cancel) }
	_, err := e.Run(ctx, operate.Task{Kind: operate.Replay, Select: operate.Selection{All: true}, Rate: 1e-12})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, log.records, 1)
}

// A task resumes after any failed append: every entity is requested, and none more often
// than there were failures.
func TestTaskGoesOnWhereItWasCutOff(t *testing.T) {
	e, log := newEnv(t)
	all := ids(1700)
	stock(t, e, "old", all...)
	list := strings.Join(all, "\n")
	for i, task := range []operate.Task{
		{Kind: operate.Replay, Select: operate.Selection{All: true}},
		{Kind: operate.Replay, Select: operate.Selection{Outdated: true}},
		{Kind: operate.Reset, Select: operate.Selection{All: true}, Services: []string{aService}},
		{Kind: operate.Replay, Select: operate.Selection{List: strings.NewReader(list)}, Force: true},
	} {
		*log = memoryLog{refuse: 1}
		var result operate.Result
		for runs := 1; ; runs++ {
			var err error
			result, err = e.Run(t.Context(), task)
			if err == nil {
				require.Greater(t, runs, 2, "it was cut off")
				break
			}
			require.ErrorIs(t, err, errAway)
			log.refuse = log.calls + 1
			require.Less(t, runs, 10)
		}
		require.True(t, result.Resumed)
		require.EqualValues(t, len(all), result.Entities, "task %d", i)
		asked := log.asked(t)
		require.Len(t, asked, len(all))
		for id, n := range asked {
			require.Equal(t, 1, n, "%s: nothing of a refused append took effect", id)
		}
		for _, r := range log.decoded(t) {
			require.Equal(t, result.Operation, r.Control.Operation)
			require.Equal(t, task.Force, r.Control.Force)
			require.Equal(t, task.Services, r.Control.Services)
			require.Equal(t, "me@here", r.Control.Actor)
		}
	}
}

// A process that counted as dead stops when another one continues its job.
func TestTwoProcessesDoNotWorkOnOneJob(t *testing.T) {
	e, log := newEnv(t)
	stock(t, e, "old", ids(1200)...)
	task := operate.Task{Kind: operate.Replay, Select: operate.Selection{All: true}}
	log.before = func(call int) {
		if call == 2 {
			_, err := e.Run(context.Background(), task)
			require.NoError(t, err)
		}
	}
	_, err := e.Run(t.Context(), task)
	require.ErrorIs(t, err, store.ErrFenced)
	require.Len(t, log.asked(t), 1200)
	jobs, err := e.Store.ListJobs(t.Context(), store.JobFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, store.JobDone, jobs[0].State)
}

// A selection by time names the entities of its events: each at least once,
// control records and what came before or after not at all.
func TestSelectionByTime(t *testing.T) {
	e, log := newEnv(t)
	rapid.Check(t, func(rt *rapid.T) {
		*log = memoryLog{}
		begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		want := map[string]bool{}
		n := rapid.IntRange(0, 40).Draw(rt, "records")
		from, to := rapid.IntRange(0, 40).Draw(rt, "from"), rapid.IntRange(1, 41).Draw(rt, "to")
		for i := range n {
			id := fmt.Sprint("e", rapid.IntRange(0, 5).Draw(rt, "entity"))
			r := change.Record{Entity: id, Event: &change.Event{Op: change.Delete}}
			if rapid.Bool().Draw(rt, "control") {
				r = change.Record{Entity: id, Control: &change.Control{ID: "x", Action: change.Reset}}
			} else if i >= from && i < to {
				want[id] = true
			}
			key, head, value, err := change.EncodeRecord(r)
			require.NoError(rt, err)
			log.records = append(log.records, transport.Scanned{Received: transport.Received{
				Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}},
				Offset: int64(i), Time: begin.Add(time.Duration(i) * time.Second),
			}})
		}
		task := operate.Task{Kind: operate.Replay, Rate: 1e6, Select: operate.Selection{
			Since: begin.Add(time.Duration(from) * time.Second), Until: begin.Add(time.Duration(to) * time.Second),
		}}
		_, err := e.Run(t.Context(), task)
		if to <= from {
			require.ErrorAs(rt, err, new(*operate.InvalidRequestError))
			return
		}
		require.NoError(rt, err)
		got := map[string]bool{}
		for _, r := range log.decoded(rt)[n:] {
			require.NotNil(rt, r.Control)
			got[r.Entity] = true
		}
		require.Equal(rt, want, got)
	})
}

func TestWhatIsNoTask(t *testing.T) {
	e, log := newEnv(t)
	now := time.Now()
	for _, task := range []operate.Task{
		{Kind: operate.Replay},
		{Kind: operate.Replay, Select: operate.Selection{All: true, Outdated: true}},
		{Kind: operate.Replay, Select: operate.Selection{All: true}, Services: []string{"nobody/all@out"}},
		{Kind: operate.Replay, Select: operate.Selection{Outdated: true}, Services: []string{aService}},
		{Kind: operate.Replay, Select: operate.Selection{Since: now, Until: now}},
	} {
		_, err := e.Run(t.Context(), task)
		require.ErrorAs(t, err, new(*operate.InvalidRequestError))
		_, err = e.Preview(t.Context(), task)
		require.ErrorAs(t, err, new(*operate.InvalidRequestError))
	}
	_, err := e.Run(t.Context(), operate.Task{Kind: operate.Replay, Select: operate.Selection{List: strings.NewReader("a\n" + strings.Repeat("x", 100_000))}})
	require.ErrorIs(t, err, operate.ErrBadList)
	jobs, err := e.Store.ListJobs(t.Context(), store.JobFilter{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.Zero(t, log.calls)
}

// A rate is kept over portions, and the wait for it can be cut off.
func TestRate(t *testing.T) {
	e, log := newEnv(t)
	stock(t, e, "old", ids(20)...)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		result, err := (&operate.Env{
			Store: inBubble{e.Store}, Plan: e.Plan, Inbox: e.Inbox, Append: log, Log: log, Shape: e.Shape, IsLog: e.IsLog, Actor: "x",
		}).Run(t.Context(), operate.Task{Kind: operate.Replay, Select: operate.Selection{All: true}, Rate: 4})
		require.NoError(t, err)
		require.EqualValues(t, 20, result.Entities)
		require.Equal(t, 4750*time.Millisecond, time.Since(began).Round(time.Millisecond), "19 waits of a quarter of a second")
	})
}

// A task waits for a slow store as long as its caller does; after that its appends are
// recorded if the store answers within a moment.
func TestSlowStore(t *testing.T) {
	e, log := newEnv(t)
	synctest.Test(t, func(t *testing.T) {
		slow := &operate.Env{
			Store: slowSaves{inBubble{e.Store}}, Plan: e.Plan, Inbox: e.Inbox, Append: log, Log: log, Shape: e.Shape, IsLog: e.IsLog, Actor: "x",
		}
		began := time.Now()
		result, err := slow.Run(t.Context(), operate.Task{Kind: operate.Replay, Select: operate.Selection{All: true}})
		require.NoError(t, err)
		require.EqualValues(t, 20, result.Entities)
		require.Equal(t, 2*time.Minute, time.Since(began), "the cursor, and the end")

		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Second, leave)
		began = time.Now()
		_, err = slow.Run(ctx, operate.Task{Kind: operate.Replay, Select: operate.Selection{All: true}})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 35*time.Second, time.Since(began))
	})
}

// A task without its last audit row is not finished: the same task resumes it, and requests
// no entity again.
func TestTaskWithoutItsLastAuditRowIsGoneOnWith(t *testing.T) {
	e, log := newEnv(t)
	stock(t, e, "old", ids(3)...)
	refuses := &auditsAway{Store: e.Store, call: 2} // after the one that says that it began
	e.Store = refuses
	task := operate.Task{Kind: operate.Replay, Select: operate.Selection{All: true}, Force: true}
	first, err := e.Run(t.Context(), task)
	require.ErrorIs(t, err, errAway)
	again, err := e.Run(t.Context(), task)
	require.NoError(t, err)
	require.True(t, again.Resumed)
	require.Equal(t, first.Job, again.Job)
	for id, n := range log.asked(t) {
		require.Equal(t, 1, n, id)
	}
}

// auditsAway does not take the audit rows of one call.
type auditsAway struct {
	operate.Store
	call int
}

func (s *auditsAway) AddAudits(ctx context.Context, audits []store.Audit) error {
	if s.call--; s.call == 0 {
		return errAway
	}
	return s.Store.AddAudits(ctx, audits)
}

// The watermarks of a generation with a successor do not move.
func TestWaitEndsWithItsGeneration(t *testing.T) {
	e, log := newEnv(t)
	var err error
	s := e.Store.(store.Store)
	e.Inbox, err = s.ResolveInbox(t.Context(), "inbox", "id", 1, nil)
	require.NoError(t, err)
	require.NoError(t, log.Append(t.Context(), []transport.Record{{Headers: []transport.Header{{}}}}))
	_, err = s.TakeOver(t.Context(), []store.Partition{{Generation: e.Inbox.Generation}}, store.Token{'a'})
	require.NoError(t, err)
	renewed, err := s.RenewInbox(t.Context(), e.Inbox, nil, nil)
	require.NoError(t, err)
	require.Greater(t, renewed.Generation, e.Inbox.Generation)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorContains(t, e.Wait(ctx), "newer generation")
	require.NoError(t, ctx.Err())
}

// slowSaves takes a minute for the row of a job.
type slowSaves struct{ inBubble }

func (slowSaves) SaveJob(ctx context.Context, _ *store.Job, _ ...store.DeadLetter) error {
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inBubble is a store without a file: work outside of the bubble would stop its clock.
type inBubble struct{ operate.Store }

func (inBubble) OpenJob(_ context.Context, j store.Job) (store.Job, error) {
	j.ID, j.Epoch, j.State = 1, 1, store.JobOpen
	return j, nil
}
func (inBubble) SaveJob(context.Context, *store.Job, ...store.DeadLetter) error { return nil }
func (inBubble) AddAudits(context.Context, []store.Audit) error                 { return nil }
func (inBubble) Entities(_ context.Context, after string, _ int) ([]store.Entity, error) {
	if after != "" {
		return nil, nil
	}
	var all []store.Entity
	for _, id := range ids(20) {
		all = append(all, store.Entity{ID: id})
	}
	return all, nil
}
