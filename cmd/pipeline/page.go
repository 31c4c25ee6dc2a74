package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/history"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/pipeline"
	"golang.org/x/term"
)

// operators is the page of a process that runs, and its history.
type operators struct {
	reg     *prometheus.Registry
	log     *slog.Logger
	history *history.Recorder // nil before record
	page    *page.Page        // nil before the operators' listener is made
}

// record begins the history of a process and registers it in the store, also without a listener.
func (o *operators) record(p *pipeline.Pipeline) {
	started := time.Now().UTC()
	o.history = history.New(history.Options{
		Registry: o.reg, Store: p.Store(), Logger: o.log, Process: func() operate.Process { return processOf(p, started) },
	})
	p.Control().RunInBackground(o.history.Run)
}

// make makes the page.
func (o *operators) make(p *pipeline.Pipeline) http.Handler {
	token, file := p.Control().OwnToken()
	o.page = page.New(page.Options{
		Config: p.Config, Store: p.Store(), Tools: p.Tools, History: o.history, Roles: p.Roles().Names(), Suspend: p.Suspend, Probe: p.Probe,
		Health: p.Status, Conditions: p.Conditions, RunInBackground: p.Control().RunInBackground,
		Attempts: p.Attempts(), Token: p.Config().Admin.Token.Reveal(), OwnToken: token, OwnFile: file, Logger: o.log,
	})
	return o.page
}

// processOf says how a process is doing, for the list of all.
func processOf(p *pipeline.Pipeline, started time.Time) operate.Process {
	health := p.Health()
	health.Services, health.Pending = health.Services[:min(operate.MaxUnwell, len(health.Services))], nil // the store has these
	return operate.Process{
		Name: pipeline.ProcessName(), Roles: strings.Join(p.Roles().Names(), ","), Revision: p.Revision(), Started: started,
		Health: health, Version: buildOf(debug.ReadBuildInfo()).Version,
	}
}

// printLogin prints the page's address. On a terminal, whose output is not collected, the
// link signs in, once.
func (o *operators) printLogin(w io.Writer, secure bool, address string) {
	f, ok := w.(*os.File)
	if o.page == nil || address == "" || !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	path := o.page.LoginPath(operate.Actor())
	if path == "" {
		fmt.Fprintf(w, "operators' page: %s://%s/\n", scheme, address)
		return
	}
	fmt.Fprintf(w, "operators' page: %s://%s%s\n(this link signs in once, within a quarter of an hour)\n", scheme, address, path)
}
