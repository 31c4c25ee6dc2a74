package pipeline

import (
	"context"
	"slices"
	"time"
)

// stageLimit bounds one run of a stage. The run ends with the process, within the
// stage's share of shutdown.timeout; or because of another configuration, within
// shutdown.timeout: an unreachable server must not block a reload. After that its waits
// are abandoned, and its work is redelivered as after a crash.
type stageLimit struct {
	p      *process
	stage  string
	end    context.Context // the limit at the end of the process
	ctx    context.Context // the limit of this run
	giveUp context.CancelFunc
}

func (p *process) newLimit(end context.Context, stage string) *stageLimit {
	l := &stageLimit{p: p, stage: stage, end: end}
	l.ctx, l.giveUp = context.WithCancel(end)
	return l
}

// stopping starts the clock. The returned function is called at the end of the run.
func (l *stageLimit) stopping() (ended func()) {
	within := l.p.cfg.Shutdown.Timeout.D()
	clock := time.AfterFunc(within, l.giveUp)
	return func() {
		late := !clock.Stop() && l.end.Err() == nil
		l.giveUp()
		if late {
			l.p.log.Warn("this stage took too long to stop for another configuration: unfinished work is abandoned and redelivered", "event", "stage.abandoned", "stage", l.stage, "within", within)
			l.p.active.now.Load().markAbandoned(l.stage)
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
