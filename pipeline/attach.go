package pipeline

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate/session"
)

// stageOf returns the options of a stage that works in a session.
func stageOf(s *session.Session) stageOptions {
	active := &activation{store: s.Store, log: s.Logger}
	active.now.Store(newSettings(s.Config, s.Plan, s.Config.Identity()))
	return stageOptions{
		cfg: s.Config, log: s.Logger, store: s.Store, logs: s.Logs, active: active, limit: context.Background(),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lost"}, []string{"topic"}),
	}
}

// DecideUntilIdle decides the records of the inbox and returns when none is left. No other process may be running.
func DecideUntilIdle(ctx context.Context, s *session.Session) error {
	stages := stageOf(s)
	inbox := &inboxManager{
		cfg: s.Config, log: s.Logger, store: s.Store, logs: s.Logs, active: stages.active, lost: stages.lost, sinks: func(*config.Config) *assemble.Sinks { return s.Sinks },
	}
	inbox.inbox.Store(&s.Inbox)
	reg := prometheus.NewRegistry()
	stage := &workStage{stageOptions: stages, inbox: inbox, decides: decide.NewMetrics(reg), rereads: newGauges(reg, nil).rereads}
	look := &idle{
		roles: Roles{Work: true}, store: s.Store, active: stages.active, inbox: inbox, work: stage,
		blocked: stage.halted,
	}
	running, err := stages.active.supervise(ctx, "work", true, stage.start)
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
