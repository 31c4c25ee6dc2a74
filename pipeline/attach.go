package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// attachTimeout bounds how long a command waits for a process that starts or ends.
const attachTimeout = 10 * time.Second

// Attach opens the state for a command, or, when another process has the data folder
// open, returns how to forward the command to that process. It waits a moment for a
// process that is just starting or ending.
func Attach(ctx context.Context, c *config.Config, log *slog.Logger) (*session.Session, *control.Running, error) {
	deadline := time.Now().Add(attachTimeout)
	for {
		s, err := session.Open(ctx, c, log)
		if err == nil && c.Kafka.Embedded() {
			// The file is this process's now: the address of an earlier one is stale.
			err = control.RemoveStale(c)
		}
		if !errors.Is(err, session.ErrInUse) {
			return s, nil, err
		}
		if c.Admin.Off() {
			return nil, nil, fmt.Errorf("%w; a command reaches that process by its operators' listener, which is off: set admin.listen, or stop the process first", err)
		}
		if r := control.Find(c); r != nil {
			return nil, r, nil
		}
		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("%w, which has not said how to reach it: it may still be starting, or run without admin.listen", err)
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			return nil, nil, context.Cause(ctx)
		}
	}
}

// stageOf returns the options of a stage that works in a session.
func stageOf(s *session.Session) stageOptions {
	active := &activation{store: s.Store, log: s.Logger}
	active.now.Store(newSettings(s.Config, s.Plan, s.Config.Identity()))
	return stageOptions{
		cfg: s.Config, log: s.Logger, store: s.Store, logs: s.Logs, active: active, limit: context.Background(),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lost"}, []string{"topic"}),
	}
}

// DecideUntilIdle decides the records of the inbox and returns when none is left and every change
// is published. No other process may be running.
func DecideUntilIdle(ctx context.Context, s *session.Session) error {
	stages := stageOf(s)
	inbox := &inboxManager{inboxOptions: inboxOptions{
		cfg: s.Config, log: s.Logger, store: s.Store, logs: s.Logs, active: stages.active, lost: stages.lost, sinks: func(*config.Config) *assemble.Sinks { return s.Sinks },
	}}
	inbox.inbox.Store(&s.Inbox)
	reg := prometheus.NewRegistry()
	stage := &decideStage{stageOptions: stages, inbox: inbox, metrics: decide.NewMetrics(reg), rereads: newGauges(reg, nil).rereads}
	look := &idle{idleOptions: idleOptions{
		roles: Roles{Decide: true}, store: s.Store, active: stages.active, inbox: inbox, decide: stage,
		blocked: stage.halted,
	}}
	running, err := stages.active.supervise(ctx, "decide", true, stage.start)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := make(chan bool, 1)
	go func() { idle <- look.until(ctx) }()
	select {
	case is := <-idle:
		if !is {
			err = context.Cause(ctx)
		}
	case err = <-running.failed:
		cancel()
		<-idle
	}
	return errors.Join(err, running.stop())
}
