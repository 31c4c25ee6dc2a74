package pipeline

import (
	"context"
	"slices"
	"time"
)

// stageLimit bounds one run of a stage. The run ends with the process, within the
// stage's share of shutdown.timeout; or because of another configuration, and
// then it has shutdown.timeout for itself: a server that does not answer must not
// hold up a reload for ever. What it waits for after that is given up, and comes
// again as after a crash.
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

// stopping starts the clock. What it gives is called when the run has ended.
func (l *stageLimit) stopping() (ended func()) {
	within := l.p.cfg.Shutdown.Timeout.D()
	clock := time.AfterFunc(within, l.giveUp)
	return func() {
		late := !clock.Stop() && l.end.Err() == nil
		l.giveUp()
		if late {
			l.p.log.Warn("this stage took too long to stop for another configuration: unfinished work is abandoned and redelivered", "stage", l.stage, "within", within)
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
