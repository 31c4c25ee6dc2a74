package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
)

// component is one running part of the process.
type component struct {
	name  string
	limit context.Context // of its end
	// stop ends it: what is in hand is finished within closeTimeout, what it waits
	// for given up at limit.
	stop func() error
	// reconfigure, if given, continues under other settings without a new start. After an
	// error nothing has changed.
	reconfigure func(ctx context.Context, next *settings) error
	// failed is closed or gets an error when the part ended by itself.
	failed <-chan error
}

// stages are the running stages of a process.
type stageSet struct {
	*process
	inbox *inboxManager
	// serveAPI starts the API, once the sources are there that it posts to; takes
	// returns why nothing can be taken now.
	serveAPI func() (stop func() error, err error)
	takes    func() error
	noise    *sketch.Collector // nil unless the process runs decide

	// What the monitor looks at while the stages run; nil where none runs.
	ingests atomic.Pointer[[]*source]
	imports atomic.Pointer[[]*imports.Worker]
	decider atomic.Pointer[decide.Decider] // nil between two subscriptions, too
	deliver atomic.Pointer[deliver.Stage]  // nil between two subscriptions, too
}

// Run runs the stages until ctx is cancelled, or, with UntilIdle, until
// everything is drained and delivered. It then stops them in the order of the
// flow, closes everything and returns nil, all within the configured time,
// whatever servers do: what could not be finished is redelivered, and a line of the
// log says so. If closing itself hangs it continues in the background when that
// time is over; the process should end then. An error means that a stage ended
// by itself. Run may be called once.
func (p *Pipeline) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.end.begin)()
	// An operator's command, or a reload, must not keep a stage.
	defer context.AfterFunc(p.end.ingest.ctx, p.control.Cancel)()
	p.monitor.begin()
	return p.end.run(p.log, func() ([]component, error) { return p.work(ctx) }, func() error {
		p.monitor.lookAgain()
		return p.close()
	})
}

// work starts the stages and returns those that run when it is time to stop them.
// An error means that one did not start, or ended by itself.
func (p *Pipeline) work(ctx context.Context) (running []component, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if file, ok := p.store.(*sqlite.Store); ok {
		defer loop(func(working context.Context) {
			select {
			case <-file.Failed():
				cancel()
			case <-working.Done():
			}
		})()
		defer func() {
			if e := file.Err(); e != nil {
				err = fmt.Errorf("the state cannot be trusted any more: %w", e)
			}
		}()
	}
	if running, err = p.startStages(ctx); err == nil {
		return running, p.keepRunning(ctx, running)
	}
	if ctx.Err() != nil {
		err = nil // a stop was asked for meanwhile
	}
	return running, err
}

// startStages starts the stages of the process's roles in the order of the flow. It
// returns those that it started, on an error, too.
func (p *Pipeline) startStages(ctx context.Context) (running []component, err error) {
	add := func(name string, limit context.Context, r component) {
		r.name, r.limit = name, limit
		running = append(running, r)
	}
	while := func(name string, limit context.Context, renews bool, start startFunc) error {
		started, err := p.active.while(ctx, name, renews, start)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		add(name, limit, started)
		return nil
	}
	if p.opt.Roles.Ingest {
		if err := while("ingest", p.end.ingest.ctx, false, p.stages.startIngest); err != nil {
			return running, err
		}
		if err := while("imports", p.end.ingest.ctx, false, p.stages.startImports); err != nil {
			return running, err
		}
	}
	if p.opt.Roles.Decide {
		p.stages.noise = sketch.NewCollector()
		add("decide", p.end.decide.ctx, p.stages.startDecide())
		add("statistics", p.end.decide.ctx, p.stages.startNoise())
	}
	if p.opt.Roles.Deliver {
		if err := while("deliver", p.end.deliver.ctx, true, p.stages.startDeliver); err != nil {
			return running, err
		}
	}
	return running, nil
}

// keepRunning monitors the stages and keeps house until ctx ends, nothing is left
// to do for UntilIdle, or a stage ends by itself, whose error it returns.
func (p *Pipeline) keepRunning(ctx context.Context, running []component) error {
	watch, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	defer p.end.begin()
	p.monitor.showZeros()
	watchers.Go(func() { p.monitor.run(watch) })
	if p.opt.Roles.Decide {
		house := &retainer{
			store: p.store, cfg: p.cfg, log: p.log, dropped: p.gauges.ledgerDropped, attempts: p.attemptBounds,
			services: func() []decide.Service { return p.active.plan().Services }, record: p.controlRecord, append: p.logs.Append,
		}
		watchers.Go(func() { house.run(watch) })
		watchers.Go(func() { p.inbox.trim(watch) })
	}
	idle := make(chan struct{})
	if p.opt.UntilIdle {
		watchers.Go(func() {
			if p.monitor.untilIdle(watch) {
				close(idle)
			}
		})
	}
	p.health.started.Store(true)
	plan := p.active.plan()
	p.log.Info("running", "services", len(plan.Services), "revision", plan.Revision, "generation", p.inbox.now().Generation)
	select {
	case <-ctx.Done():
		p.log.Info("stopping: finishing what is in hand", "within", p.cfg.Shutdown.Timeout)
		return nil
	case <-idle:
		return nil
	case err := <-merged(watch, running):
		return err
	}
}

// merged returns the first failure of any part; it looks for one until ctx ends.
func merged(ctx context.Context, running []component) <-chan error {
	first := make(chan error, len(running))
	for _, r := range running {
		go func() {
			select {
			case err, ok := <-r.failed:
				if ok {
					first <- err
				}
			case <-ctx.Done():
			}
		}()
	}
	return first
}

// abortTimeout is within what handlers return once what they wait for was
// ended: the grace of an effect that is under way, and a last save.
func (p *process) abortTimeout() time.Duration { return p.closeTimeout() + 5*time.Second }

// closeTimeout is how long the messages in flight of one stage have when it stops.
func (p *process) closeTimeout() time.Duration {
	return max(time.Second, p.cfg.Shutdown.Timeout.D()/6)
}

// groupShare is the part of the memory that one consumer group may fill with what
// it has fetched and what is in work.
const groupShare = 8

// groupConfig is what all consumer groups of the process have in common; limit
// is that of the stage, records the most of one frame.
func (st *stageSet) groupConfig(limit context.Context, id string, records int, topic string) transport.GroupConfig {
	session := st.cfg.Kafka.SessionTimeout.D()
	return transport.GroupConfig{
		ID: id, Topic: topic, FrameRecords: records, BufferBytes: st.cfg.FlowMemory() / groupShare,
		SessionTimeout: session, HeartbeatInterval: min(500*time.Millisecond, session/4),
		CloseTimeout: st.closeTimeout(), Limit: limit,
		OnRecordsLost: st.onRecordsLost,
	}
}

// loop runs f on a goroutine of its own; the given function cancels it and waits.
func loop(f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// stopAll calls stops at the same time: each may wait for a server that does
// not answer, and their times must not add up.
func stopAll(stops []func()) {
	var wg sync.WaitGroup
	for _, stop := range stops {
		wg.Go(stop)
	}
	wg.Wait()
}
