package deliver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Stage delivers the changes of all services. Run it once; Handle is the router's handler. All
// methods may be called concurrently.
type Stage struct {
	helpers
	workers []*worker // guarded by mu once Run was called, and replaced, never changed
	// subscription is to the changes log. subscribed is closed when it begins.
	subscription *transport.Subscription
	subscribed   chan struct{}
	walk         walk
	parts        map[int32]*partition // guarded by mu; those that are assigned
	started      bool                 // guarded by mu; Run was called
	closed       bool                 // guarded by mu; running starts nothing more

	stop       context.CancelFunc
	failed     chan error     // capacity 1
	delivering sync.WaitGroup // the workers
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
	s := &Stage{parts: map[int32]*partition{}, failed: make(chan error, 1), subscribed: make(chan struct{})}
	s.shared = &shared{
		calls: &calls{opt: &opt, log: opt.Logger.With("stage", "deliver")}, flow: core.NewFlow(opt.Memory), released: make(chan struct{}), signalled: s.signal,
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.subscription = transport.NewSubscription(&opt.Feed, func() { close(s.subscribed) })
	s.walk = walk{shared: s.shared, wakeUp: make(chan struct{}, 1)}
	s.saver = newSaver(s.shared, s.parts)
	s.others = &othersEntities{shared: s.shared, parts: s.parts, sem: make(chan struct{}, 1)}
	s.history = newRecorder(s.calls)
	s.large = newLargeWrites(opt.Memory)
	for _, service := range opt.Services {
		w := newWorker(&s.helpers, service)
		s.workers = append(s.workers, w)
		s.flow.Add(w.queue)
	}
	s.revision.Store(opt.Revision)
	s.list(s.workers)
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
	s.running.Go((&offers{s.shared, s.parts, s.services}).run)
	s.running.Go(s.walk.run)
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

// list sets the workers, in the order of their numbers; part of step. Readers without the mutex
// keep the list that they have.
func (s *Stage) list(workers []*worker) {
	slices.SortFunc(workers, func(a, b *worker) int { return cmp.Compare(a.opt.Number, b.opt.Number) })
	s.workers = workers
}

// begin runs a worker; part of step.
func (s *Stage) begin(w *worker) {
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	if !s.started { // Run begins it
		return
	}
	s.delivering.Go(func() { loop{w}.run(w.ctx) })
}

// signal applies the signals of the flow; part of step.
func (s *Stage) signal() {
	freed, saved := false, false
	for _, e := range s.flow.Signals() {
		var of *worker
		if e.Queue != nil {
			of = e.Queue.Data.(*worker)
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
			wait.Offer(s.walk.wakeUp, struct{}{})
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
	token := store.NewToken()
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
			s.running.Go(func() { p.feed(s.subscribed, s.subscription) })
		}
	})
	return err
}

// newPartition assigns a partition; part of step.
func (s *Stage) newPartition(row *store.Progress) *partition {
	p := &partition{s: s.shared, Partition: s.flow.Assign(row), assignment: transport.NextAssignment(), wakeUp: make(chan struct{}, 1)}
	p.lost = func() { s.onProgressLost(p) }
	p.prove()
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	s.parts[p.Number] = p
	s.restoreRows(p, row.Retrying)
	return p
}

// restoreRows hands the rows of a partition to its services; the rows of a service that is not
// configured become letters. Part of step.
func (s *Stage) restoreRows(p *partition, rows []store.DeadLetter) {
	by := map[string][]store.DeadLetter{}
	for i := range rows {
		by[rows[i].Service] = append(by[rows[i].Service], rows[i])
	}
	for _, w := range s.workers {
		of := by[w.opt.Name]
		delete(by, w.opt.Name)
		w.arrived = append(w.arrived, arrival{p.Partition, restored(p.Partition, of)})
		w.parked += len(of)
		if len(of) > 0 {
			wait.Offer(w.wakeUp, struct{}{})
		}
	}
	for _, of := range by {
		for _, l := range of {
			abandon(p.Partition, l, l.DedupKey)
		}
	}
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
	ctx, cancel := context.WithTimeout(s.opt.Limit, lastSave)
	defer cancel()
	_ = s.saver.save(ctx, last)
}

// tokenPeriod is how often partitions are compared with the store where nothing moves.
const tokenPeriod = 5 * time.Second

// revoke ends the work for a partition, if there is one; part of step.
func (s *Stage) revoke(p *partition) {
	if p != nil {
		s.others.revoked.Add(1)
		p.cancel()
		p.Revoke()
	}
}

// onProgressLost is called when the store has the progress of a partition under another
// token: either its revocation is on its way, or the store was restored. Part of step.
func (s *Stage) onProgressLost(p *partition) {
	s.log.Warn("partition has another owner", "event", "deliver.partition_lost", "partition", p.Number)
	s.revoke(p)
	time.AfterFunc(lostPatience, func() {
		s.mu.Lock()
		still := s.parts[p.Number] == p
		s.mu.Unlock()
		if still {
			wait.Offer(s.failed, fmt.Errorf("partition %d: %w", p.Number, ErrLost))
		}
	})
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

// Conditions returns the condition of each service, by name.
func (s *Stage) Conditions() map[string]Condition {
	all := map[string]Condition{}
	for _, w := range s.services() {
		all[w.opt.Name] = w.target.condition.now()
	}
	return all
}

// Pause pauses exactly these services, by name: a write in flight finishes, and later
// changes wait as for a service whose sink is unreachable, behind the others. A service
// that is not named resumes. It may be called at any time.
func (s *Stage) Pause(all map[string]store.Pause) {
	s.mu.Lock()
	s.opt.Paused = all
	s.mu.Unlock()
	for _, w := range s.services() {
		w.pause(pauseOf(all, w.opt.Name))
	}
}

// Probe makes a service that waits for its sink retry now, and reports whether this
// process delivers it.
func (s *Stage) Probe(service string) bool {
	for _, w := range s.services() {
		if w.opt.Name == service {
			w.target.condition.wake()
			return true
		}
	}
	return false
}

// Owner is the listener of the inbox: who owns a partition decides and delivers it.
type Owner struct {
	Decider interface {
		transport.PartitionListener
		// Owned returns partitions of the inbox and those of larger inboxes before that belong to them.
		Owned(partitions []int32) []int32
	}
	Stage *Stage // nil: it decides only
}

// Assigned implements transport.PartitionListener.
func (o Owner) Assigned(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	starts, err := o.Decider.Assigned(ctx, topic, partitions)
	if err == nil && o.Stage != nil {
		if err = o.Stage.Assigned(ctx, o.Decider.Owned(partitions)); err != nil {
			o.Decider.Revoked(topic, partitions)
		}
	}
	return starts, err
}

// Revoked implements transport.PartitionListener.
func (o Owner) Revoked(topic string, partitions []int32) {
	all := o.Decider.Owned(partitions)
	o.Decider.Revoked(topic, partitions)
	if o.Stage != nil {
		o.Stage.Revoked(all)
	}
}
