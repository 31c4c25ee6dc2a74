package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
)

// route is one handler of a router.
type route struct {
	name       string
	topic      string
	subscriber message.Subscriber
	handle     message.NoPublishHandlerFunc
}

// router runs handlers. Handlers return an error only for a message that has
// to be redelivered.
type router struct {
	r      *message.Router
	done   chan struct{}
	failed chan error
}

// abortGrace is how long handlers may take to return after their waits were abandoned: the time
// of an effect under way, and of a last save.
const abortGrace = 5 * time.Second

func (o *stageOptions) startRouter(stage string, routes []route) (*router, error) {
	// Watermill would log the life of every message, and errors of redelivered messages, which
	// the stages log themselves.
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: 2*closeTimeout(o.cfg) + abortGrace}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	// The outermost first: time all handling, failures included; log a panic; turn it into an
	// error. Retry and PoisonQueue would see whole frames: the stages retry records and make dead
	// letters of them. Timeout would end the wait for a store or a target that is down.
	// Deduplicator marks before the effect.
	if o.timed != nil {
		r.AddMiddleware(o.timed)
	}
	r.AddMiddleware(o.logPanics, middleware.Recoverer)
	for _, h := range routes {
		r.AddConsumerHandler(h.name, h.topic, h.subscriber, h.handle)
	}
	started := &router{r: r, done: make(chan struct{}), failed: make(chan error, 1)}
	go func() {
		defer close(started.done)
		// The router's own context never ends. Close stops the router.
		err := r.Run(context.Background())
		if err == nil {
			err = errors.New("the router ended by itself")
		}
		started.failed <- fmt.Errorf("%s: %w", stage, err)
	}()
	select {
	case <-r.Running():
		return started, nil
	case <-started.done:
	}
	select {
	case <-r.Running(): // failed has the error that ended it
		return started, nil
	default:
		return nil, <-started.failed
	}
}

// subscribe starts a stage: its runs, and routes, of which the first is of a new group. The component
// fails with the error that ends one of them. limit ends with the component, or after an error.
func (o *stageOptions) subscribe(ctx context.Context, limit *stageLimit, gc transport.GroupConfig, routes []route, runs []func(context.Context) error) (c component, err error) {
	ended := make(chan error, len(runs))
	var stops []func()
	for _, run := range runs {
		stops = append(stops, loop(func(ctx context.Context) { ended <- run(ctx) }))
	}
	stopRuns := func() { // in the order of the flow
		for _, stop := range stops {
			stop()
		}
	}
	defer func() {
		if err != nil {
			stopRuns()
			limit.giveUp()
		}
	}()
	group, err := o.logs.NewGroup(ctx, gc)
	if err != nil {
		return component{}, err
	}
	routes[0].subscriber = group.Subscriber()
	r, err := o.startRouter(limit.stage, routes)
	if err != nil {
		return component{}, errors.Join(err, group.Close())
	}
	failed, done, ending := make(chan error, 1), make(chan struct{}), sync.OnceValue(limit.stopping)
	go func() {
		var err error
		select {
		case err = <-ended:
		case err = <-r.failed:
		case <-group.Failed():
		case <-done:
			return
		}
		ending()
		stopRuns() // one ends the others: all of their errors count
		failed <- fmt.Errorf("%s: %w", limit.stage, causes(err, ended, group))
	}()
	return component{failed: failed, stop: func() error {
		close(done)
		defer ending()()
		err := r.end(closeTimeout(o.cfg)/2, stopRuns)
		if e := group.Close(); e != nil {
			// Nothing is lost by it: the group drops this member after the session time-out.
			o.log.Warn("the group was not left in order", "event", "group.not_left", "stage", limit.stage, "error", e)
		}
		return err
	}}, nil
}

// close ends the router. It waits for running handlers up to the close timeout.
func (r *router) close() error {
	err := r.r.Close()
	<-r.done
	return err
}

// end closes the router. Running handlers have patience to finish. Then abort, which is always
// called, ends their waits for a store or sink.
func (r *router) end(patience time.Duration, abort func()) error {
	closed := make(chan error, 1)
	go func() { closed <- r.close() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-closed:
		abort()
		return err
	case <-timer.C:
		abort()
		return <-closed
	}
}

// causes joins err, which ended a stage, with the errors of its group and of its own run: one
// ends the others, and the order in which they are seen must not matter.
func causes(err error, stage <-chan error, group interface{ Err() error }) error {
	err = errors.Join(err, group.Err())
	for len(stage) > 0 {
		err = errors.Join(err, <-stage)
	}
	return err
}

// logPanics logs a panic that Recoverer caught. It is a bug. The message is redelivered.
func (o *stageOptions) logPanics(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		out, err := h(msg)
		var panicked middleware.RecoveredPanicError
		if errors.As(err, &panicked) {
			log := o.log
			if id := tracing.ID(msg.Metadata); id != "" {
				log = log.With("trace_id", id)
			}
			log.Error("a handler panicked; please report this", "event", "handler.panicked", "stack", panicked.Stacktrace)
		}
		return out, err
	}
}
