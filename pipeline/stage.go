package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
)

// stageOptions are the options that all stages have in common.
type stageOptions struct {
	cfg    *config.Config // as the process was started with
	log    *slog.Logger
	store  assemble.Store
	logs   assemble.Logs // inbox and changes
	active *activation
	tracer *tracing.Tracer           // nil unless the configuration wants traces
	lost   *prometheus.CounterVec    // by topic; times that unread records were lost
	timed  message.HandlerMiddleware // nil without metrics
	limit  context.Context           // of the stage, at the end of the process
}

// component is one running part of the process.
type component struct {
	name  string
	limit context.Context // of its end
	// stop ends it: work in progress is finished within closeTimeout, its waits are
	// abandoned at limit.
	stop func() error
	// reconfigure, if given, continues under other settings without a new start. After an
	// error nothing has changed.
	reconfigure func(ctx context.Context, next *settings) error
	// failed receives an error when the component ends without being stopped.
	failed <-chan error
}

// closeTimeout is how long the messages in flight of one stage have when it stops.
func closeTimeout(c *config.Config) time.Duration {
	return max(time.Second, c.Shutdown.Timeout.D()/6)
}

// groupShare is the part of the memory that one consumer group may fill with fetched records and
// records in work.
const groupShare = 8

// group returns the configuration of a consumer group. limit ends its run. records is the most
// records of one frame.
func (o *stageOptions) group(limit context.Context, id string, records int, topic string) transport.GroupConfig {
	session := o.cfg.Kafka.SessionTimeout.D()
	return transport.GroupConfig{
		ID: id, Topic: topic, FrameRecords: records, BufferBytes: o.cfg.FlowMemory() / groupShare,
		SessionTimeout: session, HeartbeatInterval: min(500*time.Millisecond, session/4),
		CloseTimeout: closeTimeout(o.cfg), Limit: limit,
		OnRecordsLost: o.onRecordsLost,
	}
}

// onRecordsLost is called when a topic has lost records before they were read.
func (o *stageOptions) onRecordsLost(topic string, partition int32, wanted, got int64) {
	o.lost.WithLabelValues(topic).Inc()
	o.log.Error("unread records are lost from the topic", "event", "topic.records_lost", "topic", topic, "partition", partition, "wanted_offset", wanted, "resumed_at", got)
}

// stageLimit bounds one run of a stage. At the end of the process the run ends within the stage's
// share of shutdown.timeout, for another configuration within shutdown.timeout: an unreachable
// server must not block a reload. After that its waits are abandoned, and its work is redelivered
// as after a crash.
type stageLimit struct {
	*stageOptions
	stage  string
	ctx    context.Context // the limit of this run
	giveUp context.CancelFunc
}

func (o *stageOptions) newLimit(stage string) *stageLimit {
	l := &stageLimit{stageOptions: o, stage: stage}
	l.ctx, l.giveUp = context.WithCancel(o.limit)
	return l
}

// stopping starts the clock. The returned function is called at the end of the run.
func (l *stageLimit) stopping() (ended func()) {
	within := l.cfg.Shutdown.Timeout.D()
	clock := time.AfterFunc(within, l.giveUp)
	return func() {
		late := !clock.Stop() && l.limit.Err() == nil
		l.giveUp()
		if late {
			l.log.Warn("this stage took too long to stop for another configuration: unfinished work is abandoned and redelivered", "event", "stage.abandoned", "stage", l.stage, "within", within)
			l.active.now.Load().markAbandoned(l.stage)
		}
	}
}

// markAbandoned notes that a stage did not end in time to go over to the settings.
func (s *settings) markAbandoned(stage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = append(s.cut, stage)
}

// abandoned are the stages that did not end in time.
func (s *settings) abandoned() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cut)
}

// loop runs f on its own goroutine. The returned function cancels it and waits.
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

// stopAll calls stops at the same time: each may wait for an unreachable server, and
// their times must not add up.
func stopAll(stops []func()) {
	var wg sync.WaitGroup
	for _, stop := range stops {
		wg.Go(stop)
	}
	wg.Wait()
}
