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
	reg  *prometheus.Registry
	log  *slog.Logger
	page *page.Page // nil before the operators' listener is made
}

// make makes the page and begins its history.
func (o *operators) make(p *pipeline.Pipeline) http.Handler {
	token, file := p.Control().OwnToken()
	started := time.Now().UTC()
	recorder := history.New(history.Options{
		Registry: o.reg, Store: p.Store(), Logger: o.log, Process: func() history.Process { return processOf(p, started) },
	})
	p.Control().RunInBackground(recorder.Run)
	o.page = page.New(page.Options{
		Config: p.Config, Store: p.Store(), Tools: p.Tools, History: recorder, Tail: p.Tail(), SourceErrors: p.SourceErrors, Suspend: p.Suspend, Probe: p.Probe,
		Health: p.Health, Conditions: p.Conditions, Beside: p.Control().RunInBackground,
		Attempts: p.Attempts(), Token: p.Config().Admin.Token.Reveal(), OwnToken: token, OwnFile: file, Logger: o.log,
	})
	return o.page
}

// processOf says how a process is doing, for the list of all.
func processOf(p *pipeline.Pipeline, started time.Time) history.Process {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var roles []string
	for _, r := range []struct {
		name string
		is   bool
	}{{"ingest", p.Roles().Ingest}, {"decide", p.Roles().Decide}, {"deliver", p.Roles().Deliver}} {
		if r.is {
			roles = append(roles, r.name)
		}
	}
	health := p.Health()
	x := history.Process{
		Name: fmt.Sprintf("%s:%d", host, os.Getpid()), Roles: strings.Join(roles, ", "), Revision: p.Revision(), Started: started,
		Level: string(health.Level), Error: health.Error,
	}
	x.Version = buildOf(debug.ReadBuildInfo()).Version
	return x
}

// sayLogin prints where the page is. On a terminal, which nobody collects, the link
// signs in, once.
func (o *operators) sayLogin(w io.Writer, secure bool, address string) {
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
