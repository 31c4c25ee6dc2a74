package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-86dfc502/weir/config"
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

// DecideUntilIdle decides the records of the inbox and returns when none is left and every
// change is published; for a session that no running process has.
func DecideUntilIdle(ctx context.Context, s *session.Session) error {
	p := ofSession(s)
	running := p.stages.startDecide()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := make(chan bool, 1)
	go func() { idle <- p.monitor.untilIdle(ctx) }()
	var err error
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

// WorkImports works imports off until ctx ends, while the configuration of the session is
// the active one.
func WorkImports(ctx context.Context, s *session.Session) error {
	workers, err := ofSession(s).stages.newImportWorkers(1, nil)
	if err != nil {
		return err
	}
	workers[0].Run(ctx)
	return nil
}
