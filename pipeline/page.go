package pipeline

import (
	"context"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// The operators' page uses the methods below. They are safe for concurrent use while the
// pipeline runs.

// Store returns the open store. Close ends it.
func (p *Pipeline) Store() assemble.Store { return p.store }

// Control returns what takes commands.
func (p *Pipeline) Control() *control.Server { return p.control }

// Config returns the configuration that the process works under.
func (p *Pipeline) Config() *config.Config { return p.active.config() }

// Health returns how the process and its services are doing.
func (p *Pipeline) Health() operate.Health { return p.monitor.healthNow() }

// Status is Health with the dead letters and retried changes of the store.
func (p *Pipeline) Status() operate.Health { return p.monitor.status() }

// Conditions returns the delivery state of each service.
func (p *Pipeline) Conditions() map[string]deliver.Condition { return p.work.conditions() }

// Waits returns the remaining work of a run with UntilIdle as of its last check. After Run, that
// of its end.
func (p *Pipeline) Waits() []Wait { return p.idle.lastWaits() }

// Attempts returns the limit of wrong tokens of the operators' listener, once
// ServeAdmin has begun.
func (p *Pipeline) Attempts() *auth.Attempts { return p.operators.attempts }

// Roles returns the stages that the process runs.
func (p *Pipeline) Roles() Roles { return p.opt.Roles }

// Revision is the revision of the process's configuration.
func (p *Pipeline) Revision() int64 { return p.active.plan().Revision }

// Tools returns the environment of operators' commands. The error is session.ErrNotActive when
// another configuration became active.
func (p *Pipeline) Tools(ctx context.Context) (*operate.Env, error) {
	now := p.active.now.Load()
	s := session.Session{Config: now.cfg, Store: p.store, Logs: p.logs, Inbox: p.inbox.now(), Plan: now.plan, Sinks: p.sinks(now.cfg), Logger: p.log}
	return s.Env(ctx)
}

// Reload reads the configuration again, makes it the active one and lets the
// stages of this process go over to it between two batches; ingest continues
// meanwhile. Only the customers' files may have changed. rollBack lets an
// earlier configuration replace the active one. It returns when the stages work
// under the new one, or after a minute, or when ctx ends: then they do it later. Other processes
// are fenced from then on, until they get the same configuration.
//
// Nothing is changed when the error is a *control.ReloadRefused. Any other error is one
// of store or log, and the reload can be tried again. It may be called
// concurrently while Run runs; one reload follows the other.
func (p *Pipeline) Reload(ctx context.Context, rollBack bool) (control.Reloaded, error) {
	return p.reloads.run(ctx, rollBack)
}

// ServeAdmin starts the operators' listener: /healthz says that the process lives, /readyz that
// it does its work, /metrics is for Prometheus. Where a token is configured everything but the
// probes needs it; /metrics takes the token for metrics as well. /v1/commands runs commands of
// operators, never without a token: the configured one, or the one that this process leaves in
// its data folder for its own user. The same holds for /v1/reload. /debug/pprof is served where
// the configuration says so, with the configured token. Everything else is the operators' page.
// Web pages of others are kept from all of it.
func (p *Pipeline) ServeAdmin() (address string, stop func() error, err error) {
	return p.operators.listen()
}

// Pause pauses the deliveries of a service, or, with on false, resumes them: here at
// once, in other processes within seconds, and over restarts.
func (p *Pipeline) Pause(ctx context.Context, service string, on bool, actor, why string) error {
	change := operate.ResumeService
	if on {
		change = operate.PauseService
	}
	if err := change(ctx, p.store, service, actor, why); err != nil {
		return err
	}
	p.work.applyPauses(ctx)
	return nil
}

// Probe makes a service that waits for its target retry now. It returns false when this process
// does not deliver it.
func (p *Pipeline) Probe(service string) bool {
	stage := p.work.stage.Load()
	return stage != nil && stage.Probe(service)
}
