package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/history"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// operators is the page of a process that runs, and its history.
type operators struct {
	reg     *prometheus.Registry
	log     *slog.Logger
	history *history.Recorder      // nil before record
	page    *page.Page             // nil before the operators' listener is made
	base    atomic.Pointer[string] // the listener's address; nil before it listens
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
		Config: p.Config, Store: p.Store(), Tools: p.Tools, History: o.history, Roles: p.Roles().Names(), Pause: p.Pause, Probe: p.Probe,
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

// link returns a link that signs one browser in to the page, once; empty where that is off.
func (o *operators) link(actor string) string {
	base := o.base.Load()
	if base == nil || o.page == nil {
		return ""
	}
	path := o.page.LoginPath(actor)
	if path == "" {
		return ""
	}
	return *base + path
}

// printLogin prints the page's address. On a terminal, whose output is not collected, the
// link signs in, once.
func (o *operators) printLogin(w io.Writer, secure bool, address string) {
	base := "http://" + address
	if secure {
		base = "https://" + address
	}
	o.base.Store(&base)
	f, ok := w.(*os.File)
	if o.page == nil || !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	link := o.link(operate.Actor())
	if link == "" {
		fmt.Fprintf(w, "operators' page: %s/\n", base)
		return
	}
	fmt.Fprintf(w, "operators' page: %s\n(this link signs in once, within a quarter of an hour)\n", link)
}

func newPageCommand(a *app) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:   "page",
		Short: "Print a link to the operators' page that signs you in",
		Long: "Print a link to the operators' page of the process at admin.listen. It signs one browser in, once, within a quarter\n" +
			"of an hour, under your name. The page is at admin.listen; a token signs in as well: admin.token, or for an embedded\n" +
			"process the one in the file that the sign-in names.",
		Example: "  weir page -c weir.yaml",
		RunE:    func(cmd *cobra.Command, _ []string) error { return printPage(cmd.Context(), a) },
	})
}

// printPage prints a link that the running process makes.
func printPage(ctx context.Context, a *app) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	running, err := control.At(cfg)
	if err != nil {
		return withAlternative(err, "the page needs both")
	}
	link, err := running.Link(ctx, operate.Actor())
	if err != nil {
		return err
	}
	if link == "" {
		return errors.New("the page gives no link")
	}
	if a.json {
		return a.printJSON(map[string]string{"link": link})
	}
	_, err = fmt.Fprintln(a.out, link)
	return err
}
