package main

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/pipeline"
)

// operatorsPage makes the page of a process that runs.
func operatorsPage(reg *prometheus.Registry, log *slog.Logger) func(*pipeline.Pipeline) http.Handler {
	return func(p *pipeline.Pipeline) http.Handler {
		token, file := p.Control().OwnToken()
		return page.New(page.Options{
			Config: p.Config, Store: p.Store(), Tools: p.Tools, Registry: reg, Health: p.Health, Conditions: p.Conditions, Beside: p.Control().RunInBackground,
			Attempts: p.Attempts(), Token: p.Config().Admin.Token.Reveal(), OwnToken: token, OwnFile: file, Logger: log,
		})
	}
}
