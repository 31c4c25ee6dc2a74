package pipeline

import (
	"context"
	"net/http"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/store"
)

// What the operators' page sees of the process that serves it. All of it is safe
// for concurrent use while the pipeline runs.

// Store gives the open store. Close ends it.
func (p *Pipeline) Store() store.Operator { return p.store }

// OwnToken gives the token that this process made at its start and the file that
// it is in, once ServeAdmin has begun; empty with servers.
func (p *Pipeline) OwnToken() (token, file string) {
	if p.commands == nil || p.commands.token == "" {
		return "", ""
	}
	return p.commands.token, controlPath(p.cfg)
}

// Attempts gives the limit of wrong tokens of the operators' listener, once
// ServeAdmin has begun.
func (p *Pipeline) Attempts() *auth.Attempts { return p.attempts }

// during lets h answer while the process runs: the end of the process cancels
// requests and waits for them, since they work with what it closes.
func (p *Pipeline) during(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.commands.begin() {
			http.Error(w, "the process is ending", http.StatusServiceUnavailable)
			return
		}
		defer p.commands.active.Done()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(p.commands.ctx, cancel)()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Beside runs f on a goroutine of its own. The end of the process ends its
// context and waits for it, since it works with what that closes; false, and f
// is not run, when the process is ending.
func (p *Pipeline) Beside(f func(ending context.Context)) bool {
	if !p.commands.begin() {
		return false
	}
	go func() {
		defer p.commands.active.Done()
		f(p.commands.ctx)
	}()
	return true
}
