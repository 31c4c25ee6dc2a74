package pipeline

import (
	"context"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// The operators' page uses the methods below. They are safe for concurrent use while the
// pipeline runs.

// Store returns the open store. Close ends it.
func (p *Pipeline) Store() assemble.Store { return p.store }

// Control returns what takes commands.
func (p *Pipeline) Control() *control.Server { return p.operators.control }

// Health returns how the process and its services are doing.
func (p *Pipeline) Health() operate.Health { return p.monitor.healthNow() }

// Conditions returns how each service's delivery is doing.
func (p *Pipeline) Conditions() map[string]deliver.Condition { return p.stages.conditions() }

// Waits returns what kept a run with UntilIdle from ending when it was looked at
// last; none before the first look, and when nothing does. After Run it is what is
// left.
func (p *Pipeline) Waits() []Wait { return p.monitor.lastWaits() }

// Attempts returns the limit of wrong tokens of the operators' listener, once
// ServeAdmin has begun.
func (p *Pipeline) Attempts() *auth.Attempts { return p.operators.attempts }

// Roles returns the stages that the process runs.
func (p *Pipeline) Roles() Roles { return p.opt.Roles }

// Revision is that of the configuration that the process works under.
func (p *Pipeline) Revision() int64 { return p.active.plan().Revision }

// Suspend pauses the deliveries of a service, or, with on false, resumes them: here at
// once, in other processes within seconds, and over restarts.
func (p *Pipeline) Suspend(ctx context.Context, service string, on bool, actor, why string) error {
	change := operate.ResumeService
	if on {
		change = operate.SuspendService
	}
	if err := change(ctx, p.store, service, actor, why); err != nil {
		return err
	}
	p.stages.suspendServices(ctx)
	return nil
}

// suspendServices lets deliver know which services operators suspended. What the
// store does not say stays as it is.
func (st *stageSet) suspendServices(ctx context.Context) {
	stage := st.deliver.Load()
	if stage == nil {
		return
	}
	if all, err := operate.Suspended(ctx, st.store); err == nil {
		stage.Suspend(all)
	}
}

// Probe makes a service that waits for its target try now; false when this process
// does not deliver it.
func (p *Pipeline) Probe(service string) bool {
	stage := p.stages.deliver.Load()
	return stage != nil && stage.Probe(service)
}
