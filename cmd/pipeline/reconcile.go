package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/reconcile"
	"github.com/spf13/cobra"
)

// reconcileFlags say what to compare and what to do about it.
type reconcileFlags struct {
	taskFlags
	fix     bool
	samples int
	// versions leaves out values.
	versions bool
}

// reconciled is the result for one service.
type reconciled struct {
	reconcile.Result
	Error string `json:"error,omitempty"` // it could not be compared to its end
	// Of --fix: how many entities are decided again, and by which job.
	Sent int64 `json:"sent,omitempty"`
	Job  int64 `json:"job,omitempty"`
}

type reconcileOptions struct {
	*app
	f reconcileFlags
}

func newReconcileCommand(a *app) *cobra.Command {
	o := &reconcileOptions{app: a}
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare what customers should have with what their tables hold; --fix sends again what drifted",
		Long: "Compare the dam with what ClickHouse and PostgreSQL targets hold, entity by entity: missing, stale (an older version),\n" +
			"differs (the version, with other values), extra, and ahead (a version that was never decided). Queued changes are\n" +
			"no drift. It can run beside the pipeline. Files, Kafka topics and webhooks cannot be read back and are left out.\n\n" +
			"--fix decides the drifted entities again, by force, from their current state. Rows that the dam does not know, or\n" +
			"that are ahead of it, are named with a statement to delete them by hand.\n\n" +
			"Exit status 1 when something has drifted and is not to be sent again.",
		Example: "  weir reconcile -c weir.yaml\n" +
			"  weir reconcile -c weir.yaml --service acme/ripeness@warehouse --json\n" +
			"  weir reconcile -c weir.yaml --fix --yes --rate 500/s --reason \"the warehouse was restored from Monday's backup\"",
		RunE: func(cmd *cobra.Command, _ []string) error { return runReconcile(cmd.Context(), a, &o.f) },
	}
	c.Flags().StringArrayVar(&o.f.services, "service", nil, "only this service, customer/projection@sink; may be repeated")
	c.Flags().StringArrayVar(&o.f.customers, "customer", nil, "only services of this customer; may be repeated")
	c.Flags().IntVar(&o.f.samples, "samples", 5, "name so many entities per service and kind of drift")
	c.Flags().BoolVar(&o.f.versions, "versions", false, "compare versions only, not values: a quick look")
	c.Flags().BoolVar(&o.f.fix, "fix", false, "send again what drifted")
	c.Flags().BoolVarP(&o.f.yes, "yes", "y", false, "do not ask (--fix)")
	c.Flags().BoolVar(&o.f.wait, "wait", false, "return when everything is decided (--fix)")
	c.Flags().StringVar(&o.f.rate, "rate", "", "entities per second at most, for instance 200/s (--fix)")
	c.Flags().StringVar(&o.f.reason, "reason", "", "why, for the audit (--fix)")
	o.completeServices(c, false)
	return o.needConfig(c)
}

func runReconcile(ctx context.Context, a *app, f *reconcileFlags) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if !f.fix && (f.yes || f.wait || f.rate != "" || f.reason != "") {
		return &usageError{errors.New("--yes, --wait, --rate and --reason go with --fix")}
	}
	if f.samples < 0 {
		return &usageError{errors.New("--samples must not be negative")}
	}
	flags := f.taskFlags
	flags.all = true
	t, err := flags.task(operate.Replay, cfg, time.Now()) // reads the rate, too
	if err != nil {
		return err
	}
	names, skipped, err := readableServices(cfg, t.Services)
	if err != nil {
		return err
	}
	if f.fix && !f.yes {
		if err := a.confirm(ctx, "Send again what drifted? (weir reconcile without --fix shows it)"); err != nil {
			return err
		}
		f.yes = true
	}
	return a.operating(ctx, func(a *app, env *operate.Env) error {
		var all []reconciled
		for _, name := range names {
			r, err := reconcileService(ctx, a, env, name, f, t.Rate)
			all = append(all, r)
			if err != nil {
				return err
			}
		}
		if f.fix && f.wait {
			if err := env.Wait(ctx); err != nil {
				return err
			}
		}
		if err := printReconciled(a, all, skipped, f, env.Alone); err != nil {
			return err
		}
		return verdictOf(all, f.fix)
	})
}

// readableServices splits the chosen services (all if none are chosen) into those whose targets
// can be read back and the others.
func readableServices(cfg *config.Config, chosen []string) (readable, others []string, err error) {
	wanted := map[string]bool{}
	for _, name := range chosen {
		wanted[name] = true
	}
	for _, s := range cfg.Services() {
		switch {
		case chosen != nil && !wanted[s.Name]:
		case assemble.CanReadBack(s):
			readable = append(readable, s.Name)
		default:
			others = append(others, s.Name)
		}
	}
	if len(readable) == 0 {
		return nil, nil, &usageError{errors.New("none of the services has a target that can be read back")}
	}
	return readable, others, nil
}

// reconcileService compares one service and, with --fix, has its drifted entities decided again.
// A target that cannot be read is in the result, so that the others are compared. The error ends
// the command.
func reconcileService(ctx context.Context, a *app, env *operate.Env, name string, f *reconcileFlags, rate float64) (reconciled, error) {
	r := reconciled{Result: reconcile.Result{Service: name}}
	service, ok := env.Plan.Service(name)
	if !ok {
		return r, fmt.Errorf("there is no service %s in the active configuration", name)
	}
	target, err := env.Target(ctx, name)
	if err != nil {
		if ctx.Err() != nil {
			return r, err
		}
		r.Error = err.Error()
		return r, nil
	}
	defer target.Close()
	in := reconcile.Input{
		Store: env.Store, Plan: env.Plan, Service: service, Target: target, Forgets: target.Forgets, Versions: f.versions, Samples: f.samples,
	}
	if env.Progress != nil {
		// A service has a row for each entity that it got, so for no more than there are.
		total, err := env.Store.CountEntities(ctx)
		if err != nil {
			return r, fmt.Errorf("store: %w", err)
		}
		in.Progress = func(rows int64) { env.Progress(rows, max(rows, total)) }
	}
	var drifted *spool
	if f.fix {
		if drifted, err = newSpool(); err != nil {
			return r, err
		}
		defer drifted.remove()
		in.Repair = drifted.add
	}
	r.Result, err = reconcile.Compare(ctx, in)
	if err != nil {
		if ctx.Err() != nil {
			return r, err
		}
		r.Error = err.Error()
	}
	// Drift found before a failure still counts.
	if drifted == nil || drifted.n == 0 {
		return r, nil
	}
	list, err := drifted.list()
	if err != nil {
		return r, err
	}
	reason := "reconcile"
	if f.reason != "" {
		reason += ": " + f.reason
	}
	result, err := env.Run(ctx, operate.Task{
		Kind: operate.Replay, Select: operate.Selection{List: list}, Services: []string{name}, Force: true, Rate: rate, Reason: reason,
	})
	r.Sent, r.Job = result.Entities, result.Job
	if err != nil {
		return r, fmt.Errorf("%s: job %d is not finished; the same command compares again and sends the rest: %w", name, result.Job, err)
	}
	return r, nil
}

// verdictOf is the failure that the exit status tells of.
func verdictOf(all []reconciled, fix bool) error {
	var drift, left, failed int64
	for i := range all {
		drift += all[i].Drift()
		left += all[i].Drift() - all[i].Sent
		if all[i].Error != "" {
			failed++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d services could not be compared to the end", failed, len(all))
	case drift > 0 && !fix:
		return errors.New(entities(drift) + " drifted (--fix sends them again)")
	case left > 0:
		return errors.New(entities(left) + " drifted and cannot be sent again")
	}
	return nil
}

func printReconciled(a *app, all []reconciled, skipped []string, f *reconcileFlags, alone bool) error {
	if a.json {
		return a.printJSON(struct {
			Services []reconciled `json:"services"`
			Skipped  []string     `json:"skipped,omitempty"` // their targets cannot be read back
			Decided  bool         `json:"decided"`
		}{all, skipped, f.fix && f.wait})
	}
	n := humanize.Comma
	err := table(&a.console, "SERVICE\tDAM ROWS\tIN STEP\tQUEUED\tUNKNOWN\tREFUSED\tMISSING\tSTALE\tDIFFERS\tEXTRA\tAHEAD", all, func(r *reconciled) []any {
		return []any{r.Service, n(r.Rows), n(r.InStep), n(r.Queued), n(r.Unknown), n(r.Refused), n(r.Missing), n(r.Stale), n(r.Differs), n(r.Extra), n(r.Ahead)}
	})
	if err != nil {
		return err
	}
	sent := int64(0)
	for i := range all {
		r := &all[i]
		if r.Expired > 0 {
			fmt.Fprintf(a.out, "%s: %s not in a table that forgets: expired, or missing\n", r.Service, entities(r.Expired))
		}
		if r.NotCompared > 0 {
			fmt.Fprintf(a.out, "%s: %s in step by version; values not compared (%s)\n", r.Service, entities(r.NotCompared), notCompared(f.versions))
		}
		if r.Error != "" {
			fmt.Fprintf(a.out, "%s: not compared to the end: %s\n", r.Service, r.Error)
		}
		for _, s := range r.Samples {
			fmt.Fprintf(a.out, "%s: %q %s: %s\n", r.Service, s.Entity, s.Verdict, terminal.Harmless(describe(s)))
		}
		if r.Sent > 0 {
			sent += r.Sent
			fmt.Fprintf(a.out, "%s: job %d: %s to be sent again\n", r.Service, r.Job, entities(r.Sent))
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(a.out, "left out, cannot be read back: %s\n", strings.Join(skipped, ", "))
	}
	if sent > 0 {
		printNext(a, alone, f.wait)
	}
	return nil
}

// notCompared is the reason for values that were not compared.
func notCompared(versions bool) string {
	if versions {
		return "--versions"
	}
	return "changed since, or the columns no longer take the document"
}

// describe returns one line: the target's row beside the expected one.
func describe(s reconcile.Finding) string {
	held := "nothing is there"
	if s.Held != "" {
		held = "version " + s.Held + " is there"
	}
	decided := s.Decided + " was delivered"
	if s.Decided == "" {
		decided = "the dam does not know it"
	} else if s.Verdict == reconcile.Ahead {
		decided = "the newest decided is " + s.Decided
	}
	text := held + ", " + decided
	if len(s.Columns) > 0 {
		text += "; other values in " + strings.Join(s.Columns, ", ")
	}
	if s.Statement != "" {
		text += "; by hand: " + s.Statement
	}
	return text
}

// spool is a list of entities in a temporary file: there may be many.
type spool struct {
	file *os.File
	w    *bufio.Writer
	n    int64
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "weir-drifted-")
	if err != nil {
		return nil, err
	}
	return &spool{file: f, w: bufio.NewWriter(f)}, nil
}

// add writes an id. An id with a line break is left out, and so stays drifted.
func (s *spool) add(id string) error {
	if strings.ContainsAny(id, "\r\n") {
		return nil
	}
	s.n++
	_, err := s.w.WriteString(id + "\n")
	return err
}

func (s *spool) list() (io.ReadSeeker, error) { return s.file, s.w.Flush() }

func (s *spool) remove() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}
