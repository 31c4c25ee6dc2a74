package pipeline

import (
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
)

// What the operators' page sees of the process that serves it. All of it is safe
// for concurrent use while the pipeline runs.

// Store returns the open store. Close ends it.
func (p *Pipeline) Store() store.Operator { return p.store }

// Control returns what takes commands; nil without Options.Commands.
func (p *Pipeline) Control() *control.Server { return p.control }

// Attempts returns the limit of wrong tokens of the operators' listener, once
// ServeAdmin has begun.
func (p *Pipeline) Attempts() *auth.Attempts { return p.attempts }
