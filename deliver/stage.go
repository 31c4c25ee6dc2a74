package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

var (
	errStopped  = errors.New("deliver is stopping")
	errRevoked  = errors.New("the partition is no longer this process's")
	errWentBack = errors.New("the log in the store ends before a frame that it had")
)

// ErrLost is what Run returns, wrapped, when the store has a partition that is assigned
// to this process under another token: the store was restored, or another process took
// it over. Deliver has to restart from the store's progress.
var ErrLost = errors.New("the progress of a partition is no longer this process's")

// Store is what deliver needs of the store.
type Store interface {
	store.Deliveries
	Admit(ctx context.Context, a store.Admission) ([]store.Admitted, *store.Pause, error)
	Retrying(ctx context.Context, keys []string) ([]store.DeadLetter, error)
	Offered(ctx context.Context, ids []int64) error
	AddLetters(ctx context.Context, letters []store.DeadLetter) error
	DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error)
	Letter(ctx context.Context, id int64) (store.DeadLetter, error)
}

// Retry bounds the attempts at one change.
type Retry struct {
	// For is how long a change is tried that its target answers with an error, before it is
	// given up: core.Service has the rule. Defaults to 24h.
	For time.Duration
	// MinBackoff and MaxBackoff bound the wait between attempts. Default to
	// 200ms and 30s.
	MinBackoff, MaxBackoff time.Duration
	// Later is when a change whose attempts all failed is offered again for the first time; the
	// wait doubles from there, up to a day. 0 means never.
	Later time.Duration
}

// Service is one service to deliver.
type Service struct {
	Name   string
	Number int32 // the store's number of it
	Sink   sinks.Sink
	Retry  Retry
	// History says that Options.History gets the attempts.
	History bool
	Guard   Guard
	Pace    Pace
	// Refresh is the period in which each unchanged entity is sent again. 0 means never.
	Refresh time.Duration
}

// Options of a Stage. All fields are needed unless they say a default.
type Options struct {
	Services []Service
	// Revision is the revision of this process's configuration. A change of an older one that the
	// sink refuses is decided again; one of a newer one is not this process's to deliver.
	Revision int64
	// Superseded is called, from any goroutine and perhaps often, when a change of
	// a newer revision came. It must not block.
	Superseded func()
	Store      Store
	// History, if given, keeps the attempts of services that have one. Neither its
	// pace nor its failures hold up a delivery.
	History Attempts
	// Feed are the topic and the times of the stage's subscription to the changes log.
	Feed transport.GroupConfig
	// Control appends control records to the inbox and returns when they are durable.
	Control func(ctx context.Context, controls ...change.Record) error
	// Partition returns the inbox partition in which a version of an entity was
	// decided: another generation of the inbox may have had another number of them.
	// Of a generation that is not known, it is that of the newest.
	Partition func(entity string, version change.Version) int32
	// InboxEnd returns the position that the next record of an inbox partition gets.
	InboxEnd func(ctx context.Context, partition int32) (change.Version, error)
	// Partitions is the number of inbox partitions, of all processes. Defaults to 1.
	Partitions int
	// Memory is how many bytes of changes may wait for sinks, over all services.
	// Defaults to 64 MiB.
	Memory int64
	// StopGrace is how long a write in flight may take at a shutdown. Defaults to 5s.
	StopGrace time.Duration
	// Paused are the services that an operator or the guard has paused, by name.
	Paused map[string]store.Pause
	// Now is the time of the guard's windows and of refreshes. Defaults to time.Now.
	Now func() time.Time
	// Limit, if given, ends everything that a shutdown lets finish (writes, reads,
	// progress): the changes are redelivered, with their keys.
	Limit   context.Context
	Logger  *slog.Logger
	Metrics *Metrics
	// Tracer makes spans of traced changes. Defaults to none: sinks pass no trace
	// context on then.
	Tracer *tracing.Tracer
}

// State says how a service is doing.
type State string

// The states of a service.
const (
	StateRunning  State = "running"
	StatePaced    State = "paced"    // changes wait on purpose, for the pace of the service
	StateRetrying State = "retrying" // the last attempt failed and is repeated
	StatePaused   State = "paused"   // see Condition.Pause
)

// Stage delivers the changes of all services. Run it once; Handle is the router's handler. All
// methods may be called concurrently.
type Stage struct {
	opt     Options
	log     *slog.Logger
	limit   context.Context
	workers []*worker // guarded by mu once Run was called, and replaced, never changed
	// subscription is to the changes log. subscribed is closed when it begins.
	subscription *transport.Subscription
	subscribed   chan struct{}
	saver        saver
	others       othersEntities
	history      *recorder
	large        *largeWrites
	repairs      chan struct{} // capacity 1: a repair is needed, or its requests are answered

	ctx        context.Context // ends when Run's does
	stop       context.CancelFunc
	failed     chan error // capacity 1
	running    sync.WaitGroup
	delivering sync.WaitGroup // the workers
	revision   atomic.Int64   // see Options.Revision

	mu       sync.Mutex
	flow     *core.Flow           // guarded by mu, with its partitions, queues and slices; see step
	parts    map[int32]*partition // guarded by mu; those that are assigned
	released chan struct{}        // guarded by mu; closed and replaced at each core.Freed
	started  bool                 // guarded by mu; Run was called
	closed   bool                 // guarded by mu; running starts nothing more
}

// New makes a stage.
func New(opt Options) *Stage {
	opt.StopGrace = defaults.Positive(opt.StopGrace, 5*time.Second)
	opt.Memory = defaults.Positive(opt.Memory, 64<<20)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Limit == nil {
		opt.Limit = context.Background()
	}
	s := &Stage{
		opt: opt, log: opt.Logger.With("stage", "deliver"), limit: opt.Limit,
		flow: core.NewFlow(opt.Memory), parts: map[int32]*partition{}, released: make(chan struct{}), failed: make(chan error, 1),
		repairs: make(chan struct{}, 1), subscribed: make(chan struct{}),
	}
	s.subscription = transport.NewSubscription(&s.opt.Feed, func() { close(s.subscribed) })
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.large = newLargeWrites(opt.Memory)
	s.saver.init(s)
	s.others.s, s.others.sem = s, make(chan struct{}, 1)
	s.history = newRecorder(s)
	for _, service := range opt.Services {
		w := newWorker(s, service)
		s.workers = append(s.workers, w)
		s.flow.Add(w.queue)
	}
	s.revision.Store(opt.Revision)
	slices.SortFunc(s.workers, func(a, b *worker) int { return cmp.Compare(a.opt.Number, b.opt.Number) })
	return s
}

// services returns the workers.
func (s *Stage) services() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers
}

// Run delivers until ctx is cancelled; then the writes in flight finish, unless their
// sinks fail or Options.Limit ends, their progress is saved, and the sinks are closed.
// Its error wraps ErrLost, or is nil.
func (s *Stage) Run(ctx context.Context) error {
	var writers sync.WaitGroup
	s.mu.Lock()
	s.started = true
	for _, w := range s.workers {
		s.begin(w)
	}
	s.mu.Unlock()
	worked, end := context.WithCancel(context.WithoutCancel(ctx))
	writers.Go(func() { s.saver.run(worked) })
	writers.Go(func() { s.history.run(worked) })
	s.running.Go(func() {
		for wait.Sleep(s.ctx, tokenPeriod) {
			_ = s.saver.checkTokens(s.ctx) // again later
		}
	})
	s.running.Go(s.offerDue)
	s.running.Go(s.walk)
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.failed:
	}
	s.stop()
	s.delivering.Wait()
	end()
	writers.Wait()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	s.delivering.Wait() // those that a reconfiguration began meanwhile
	return err
}

// step runs do, which may change the flow, and applies its signals.
func (s *Stage) step(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	s.signalled()
}

// workerOf returns the worker of a queue, nil if it has ended. The caller holds s.mu.
func (s *Stage) workerOf(q *core.Queue) *worker {
	i, _ := slices.BinarySearchFunc(s.workers, q.Number, func(w *worker, number int32) int { return cmp.Compare(w.opt.Number, number) })
	for ; i < len(s.workers) && s.workers[i].opt.Number == q.Number; i++ {
		if s.workers[i].queue == q {
			return s.workers[i]
		}
	}
	return nil
}

// signalled applies the signals of the flow; part of step.
func (s *Stage) signalled() {
	var of *worker // of a signal's queue
	freed, saved := false, false
	for _, e := range s.flow.Signals() {
		if e.Queue != nil && (of == nil || of.queue != e.Queue) {
			if of = s.workerOf(e.Queue); of == nil {
				continue
			}
		}
		switch e.Kind {
		case core.Deliver:
			wait.Offer(of.wakeUp, struct{}{})
		case core.Read:
			if p := s.parts[e.Partition.Number]; p != nil {
				wait.Offer(p.wakeUp, struct{}{})
			}
		case core.Save:
			saved = true
		case core.Freed:
			freed = true
		case core.Walk:
			wait.Offer(s.repairs, struct{}{})
		case core.Lagging:
			level := slog.LevelWarn
			if e.Queue.Paced {
				level = slog.LevelInfo
			}
			of.log.Log(context.Background(), level, "service is lagging; catching up separately", "event", "delivery.lagging")
		case core.CaughtUp:
			of.log.Info("caught up", "event", "delivery.caught_up", "partition", e.Partition.Number)
		case core.Lost:
			of.reportLost(e)
		case core.RepairUnreadable:
			of.log.Error("stored repair cannot be read; all entities are decided again", "event", "repair.unreadable", "partition", e.Partition.Number)
		}
	}
	if saved {
		s.saver.poke()
	}
	if freed {
		for _, p := range s.parts {
			if p.Starved() {
				wait.Offer(p.wakeUp, struct{}{})
			}
		}
		close(s.released)
		s.released = make(chan struct{})
	}
}

// Assigned takes the progress of partitions over. It retries until ctx ends.
func (s *Stage) Assigned(ctx context.Context, partitions []int32) (err error) {
	token := newToken()
	var rows []store.Progress
	if err := s.retryUntil(ctx, s.ctx, "take over the progress of partitions", func() (err error) {
		rows, err = s.opt.Store.TakeProgress(ctx, partitions, token)
		return err
	}); err != nil {
		return err
	}
	crash.At(crash.ProgressTaken, "")
	s.step(func() {
		if s.closed {
			err = errStopped
			return
		}
		for i := range rows {
			s.revoke(s.parts[rows[i].Partition])
			rows[i].Token = token
			p := s.newPartition(&rows[i])
			s.running.Go(func() { s.feed(p) })
		}
	})
	return err
}

// Revoked ends the work for partitions, and saves their progress if the store answers soon.
func (s *Stage) Revoked(partitions []int32) {
	var last []*partition
	s.step(func() {
		for _, n := range partitions {
			if p := s.parts[n]; p != nil {
				last = append(last, p)
				s.revoke(p)
				delete(s.parts, n)
			}
		}
	})
	// If the store answers soon, the next owner does not repeat finished deliveries.
	ctx, cancel := context.WithTimeout(s.limit, lastSave)
	defer cancel()
	_ = s.saver.save(ctx, last)
}

const (
	lastSave = 2 * time.Second
	// tokenPeriod is how often partitions are compared with the store where nothing moves.
	tokenPeriod = 5 * time.Second
)

// revoke ends the work for a partition, if there is one; part of step.
func (s *Stage) revoke(p *partition) {
	if p != nil {
		s.others.revoked.Add(1)
		p.cancel()
		p.Revoke()
	}
}

// onProgressLost is called when the store has the progress of partitions under another
// token: either their revocation is on its way, or the store was restored.
func (s *Stage) onProgressLost(lost []*partition) {
	for _, p := range lost {
		s.log.Warn("partition has another owner", "event", "deliver.partition_lost", "partition", p.Number)
		s.step(func() { s.revoke(p) })
		time.AfterFunc(lostPatience, func() {
			s.mu.Lock()
			still := s.parts[p.Number] == p
			s.mu.Unlock()
			if still {
				wait.Offer(s.failed, fmt.Errorf("partition %d: %w", p.Number, ErrLost))
			}
		})
	}
}

// lostPatience is how long after another process's takeover the revocation may come.
const lostPatience = 3 * time.Second

// Behind returns, for each lagging service, the number of partitions in which it lags.
func (s *Stage) Behind() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind, lags := map[string]int{}, s.flow.Lags()
	for _, w := range s.workers {
		if n := lags[w.queue]; n > 0 {
			behind[w.opt.Name] = n
		}
	}
	return behind
}

// Idle reports whether no change is queued, in flight, waits for another attempt, or was
// lost and is still to be decided again.
func (s *Stage) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flow.Idle() && !slices.ContainsFunc(s.workers, func(w *worker) bool { return w.parked > 0 })
}
