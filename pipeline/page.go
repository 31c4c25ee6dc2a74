package pipeline

import (
	"context"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// What the operators' page sees of the process that serves it. All of it is safe
// for concurrent use while the pipeline runs.

// PageStore is what the page asks of a store.
type PageStore interface {
	operate.Store
	revisions
	CountEntities(ctx context.Context) (int64, error)
}

// Store returns the open store. Close ends it.
func (p *Pipeline) Store() PageStore { return p.store }

// Control returns what takes commands; nil without Options.Commands.
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
