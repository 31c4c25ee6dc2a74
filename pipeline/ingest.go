package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sources"
)

// asideShare is the part of the memory for events that unavailable partitions of the inbox
// do not take.
const asideShare = 32

// ingestStage ingests the sources, and serves the API that posts to them.
type ingestStage struct {
	stageOptions
	gate      gate.Gate
	metrics   *ingest.Metrics
	inboxID   func() string // of the present generation
	storeID   func() string
	stored    func(ctx context.Context, source, after string) ([]string, error) // of sources.Env
	decided   func(context.Context) error                                       // likewise
	barrier   func(context.Context, change.Session, string, func(error)) error  // likewise
	untilIdle bool
	// serveAPI starts the API, when the sources that it posts to are open.
	serveAPI func() (stop func() error, err error)

	running atomic.Pointer[[]*source]
}

// sources returns the sources that run, and the blocked ones.
func (st *ingestStage) sources() []*source {
	if all := st.running.Load(); all != nil {
		return *all
	}
	return nil
}

// start starts the first router: one handler per source. A source that cannot be opened is
// blocked with its reason, and opened later. A run until idle fails instead.
func (st *ingestStage) start(ctx context.Context, _ startOptions) (component, error) {
	var ingests []*source
	var blocked []*source
	var routes []route
	var stops []func() // one per source, after the router
	fail := func(err error) (component, error) {
		st.running.Store(nil)
		stopAll(stops)
		return component{}, err
	}
	env := st.sourceEnv()
	var aside *ingest.Aside
	if !st.cfg.Kafka.Embedded() {
		aside = ingest.NewAside(int64(st.cfg.Limits.Memory) / asideShare)
	}
	for i := range st.cfg.Sources {
		c := &st.cfg.Sources[i]
		shape, err := assemble.ExtractorOf(st.cfg, c)
		if err != nil {
			return fail(err)
		}
		s := &source{name: c.Name, shape: shape, stage: ingest.New(ingest.Options{
			Extractor: shape, Gate: st.gate, Inbox: st.logs, Topic: st.cfg.Kafka.Inbox.Topic, Letters: st.store,
			InboxID: st.inboxID, Aside: aside, Partitions: int32(st.cfg.Kafka.Inbox.Partitions),
			Limit: st.limit, Logger: st.log, Metrics: st.metrics, Tracer: st.tracer,
		})}
		s.open = func(ctx context.Context) (sources.Source, error) { return assemble.OpenSource(ctx, st.cfg, c, env) }
		s.Source, err = s.open(ctx)
		switch {
		case err == nil:
			stops = append(stops, func() { _ = s.Close() })
			routes = append(routes, s.route())
		case st.untilIdle || ctx.Err() != nil:
			return fail(fmt.Errorf("source %s: %w", c.Name, err))
		default:
			s.why.Store(&err)
			blocked = append(blocked, s)
		}
		ingests = append(ingests, s)
	}
	st.running.Store(&ingests)
	r, err := st.startRouter("ingest", routes)
	if err != nil {
		return fail(err)
	}
	closeListener, err := st.serveAPI()
	if err != nil {
		_ = r.close()
		return fail(err)
	}
	var opening []func()
	for _, b := range blocked {
		opening = append(opening, loop(func(ctx context.Context) {
			if s := b.awaitOpen(ctx); s != nil && st.addSource(r, s) {
				<-ctx.Done() // its messages end with the router
				_ = s.Close()
			}
		}))
	}
	return component{failed: r.failed, stop: func() error {
		err := closeListener()
		st.running.Store(nil)
		return errors.Join(err, r.end(closeTimeout(st.cfg)/2, func() { stopAll(append(opening, stops...)) }))
	}}, nil
}

// sourceEnv returns the environment of all sources.
func (st *ingestStage) sourceEnv() sources.Env {
	budget := transport.NewBudget(st.cfg.FlowMemory() / groupShare) // of all sources
	env := sources.Env{
		Complete: st.untilIdle, Positions: st.store, Logs: st.store, Stored: st.stored, Decided: st.decided, Barrier: st.barrier, OnRecordsLost: st.onRecordsLost, Limit: st.limit, Logger: st.log, StoreID: st.storeID(), Shared: new(sources.Shared),
		Group: func(id string, records int, topic string) transport.GroupConfig {
			gc := st.group(st.limit, id, records, topic)
			gc.Budget = budget
			return gc
		},
	}
	if len(st.cfg.Kafka.Brokers) == 0 {
		env.State = st.inboxID()
	}
	return env
}

// source is one source of the process.
type source struct {
	sources.Source // nil until it is open
	name           string
	shape          ingest.Extractor
	stage          *ingest.Stage
	open           func(context.Context) (sources.Source, error)
	why            atomic.Pointer[error] // why it is not open
}

// failing returns why nothing is read of the source at present, nil if it is read, and the name
// of its input.
func (s *source) failing() (input string, err error) {
	if why := s.why.Load(); why != nil {
		return "its configured input", *why
	}
	if f, ok := s.Source.(sources.Failing); ok {
		return f.WaitsFor(), f.Failing()
	}
	return "", nil
}

func (s *source) route() route {
	return route{name: "ingest." + s.name, topic: s.Topic(), subscriber: s, handle: s.stage.Handle}
}

// addSource replaces a blocked source, and runs its handler. When the stage is ending it closes
// the source and returns false.
func (st *ingestStage) addSource(r *router, s *source) bool {
	before := st.running.Load()
	for before != nil {
		after := slices.Clone(*before)
		after[slices.IndexFunc(after, func(o *source) bool { return o.name == s.name })] = s
		if st.running.CompareAndSwap(before, &after) {
			break
		}
		before = st.running.Load()
	}
	h := s.route()
	err := errStageEnding
	if before != nil {
		r.r.AddConsumerHandler(h.name, h.topic, h.subscriber, h.handle)
		err = r.r.RunHandlers(context.Background()) // as the router's own context, it ends by Close
	}
	if err != nil {
		st.log.Warn("the source was not started", "event", "source.not_started", "source", s.name, "error", err)
		_ = s.Close()
	}
	return err == nil
}

var errStageEnding = errors.New("the stage is ending")

// awaitOpen returns the source as soon as it can be opened, or nil when ctx ends before.
func (s *source) awaitOpen(ctx context.Context) *source {
	opened := &source{name: s.name, shape: s.shape, stage: s.stage}
	// The monitor logs the outage.
	_, err := wait.Retry(ctx, ctx, slog.New(slog.DiscardHandler), "open the source", func() (err error) {
		if opened.Source, err = s.open(ctx); err != nil {
			s.why.Store(&err)
		}
		return err
	})
	if err != nil {
		return nil
	}
	return opened
}
