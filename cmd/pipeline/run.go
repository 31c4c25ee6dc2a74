package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) runCommand() *cobra.Command {
	var role string
	var untilIdle, activate bool
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the pipeline until it is stopped",
		Long: "Run the pipeline until it is stopped: SIGTERM or SIGINT finish what is in hand, a second signal ends at once.\n" +
			"SIGHUP reads the customers' files again, as pipeline reload does.\n" +
			"Several processes with the same configuration share the work.",
		Example: "  pipeline run -c weir.yaml\n  pipeline run -c weir.yaml --until-idle\n  pipeline run -c weir.yaml --role decide,deliver",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			roles, err := parseRoles(role)
			if err != nil {
				return &usageError{err}
			}
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), cfg, pipeline.Options{Config: cfg, Roles: roles, UntilIdle: untilIdle, Activate: activate})
		},
	}
	c.Flags().StringVar(&role, "role", "ingest,decide,deliver", "stages that this process runs, separated by commas")
	c.Flags().BoolVar(&untilIdle, "until-idle", false, "end when the sources are drained and everything is delivered")
	c.Flags().BoolVar(&activate, "activate", false, "let this configuration replace a later one (a roll-back)")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"ingest", "decide", "deliver"}, cobra.ShellCompDirectiveNoFileComp))
	return a.needConfig(c)
}

func parseRoles(s string) (pipeline.Roles, error) {
	var r pipeline.Roles
	for _, word := range strings.Split(s, ",") {
		switch strings.TrimSpace(word) {
		case "ingest":
			r.Ingest = true
		case "decide":
			r.Decide = true
		case "deliver":
			r.Deliver = true
		default:
			return r, fmt.Errorf("--role: %q is no stage; want ingest, decide or deliver", word)
		}
	}
	return r, nil
}

func (a *app) run(ctx context.Context, cfg *config.Config, opt pipeline.Options) error {
	log := logger(cfg, a.err)
	for _, warning := range cfg.Warnings() {
		log.Warn(warning)
	}
	log.Debug("the runtime collects garbage rather than to use more memory", "bytes", heedMemory(int64(cfg.Limits.Memory)))
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	opt.Logger, opt.Registry = log, reg
	opt.Load = func() (*config.Config, error) { return a.read() }
	var p *pipeline.Pipeline // serves commands only when it is open
	opt.Commands = func(ctx context.Context, c control.Command, tools func(context.Context) (*operate.Env, error), out, err io.Writer) int {
		return a.executor(p.Config(), log)(ctx, c, tools, out, err)
	}
	opt.Page = operatorsPage(reg, log)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	start := time.Now()
	var err error
	p, err = pipeline.Open(ctx, opt)
	if err != nil && ctx.Err() != nil {
		log.Info("stopped before it was running")
		return nil
	}
	var faults *config.Faults
	if errors.As(err, &faults) { // of a file that the configuration names
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	address, stopAdmin, err := p.ServeAdmin()
	if err != nil {
		return errors.Join(err, p.Close())
	}
	if address != "" {
		log.Info("serving metrics and probes", "address", address)
	}
	stopProgress := a.progress(reg)
	stopReloads := reloads(hangups, p)
	err = p.Run(ctx)
	stopReloads()
	err = errors.Join(err, stopAdmin())
	stopProgress()
	if !opt.UntilIdle && !a.json {
		return err
	}
	s, e := pipeline.Summarize(reg)
	if e != nil {
		return errors.Join(err, e)
	}
	if a.json {
		return errors.Join(err, a.printJSON(s))
	}
	a.summary(cfg, s, time.Since(start))
	return err
}

// progress shows one line that is written over and over while standard
// error is a terminal.
func (a *app) progress(reg *prometheus.Registry) (stop func()) {
	f, ok := a.err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var last int64
		for {
			select {
			case <-tick.C:
			case <-quit:
				fmt.Fprint(f, "\r\033[K")
				return
			}
			s, err := pipeline.Summarize(reg)
			if err != nil {
				continue
			}
			var held, pruned, delivered int64
			for _, c := range s.Customers {
				held, pruned, delivered = held+c.Held, pruned+c.Pruned, delivered+c.Delivered
			}
			fmt.Fprintf(f, "\r\033[K%s events (%s/s) · %s not touched · %s held back · %s delivered",
				humanize.Comma(s.Read), humanize.Comma(s.Read-last), humanize.Comma(pruned), humanize.Comma(held), humanize.Comma(delivered))
			last = s.Read
		}
	}()
	return func() { close(quit); <-done }
}

// summary tells a newcomer what happened.
func (a *app) summary(cfg *config.Config, s pipeline.Summary, took time.Duration) {
	n := humanize.Comma
	fmt.Fprintf(a.out, "\nDone in %s.\n\n", took.Round(10*time.Millisecond))
	var sum pipeline.CustomerSummary
	for _, c := range s.Customers {
		sum.Pruned, sum.Held, sum.Passed = sum.Pruned+c.Pruned, sum.Held+c.Held, sum.Passed+c.Passed
		sum.Delivered, sum.Coalesced = sum.Delivered+c.Delivered, sum.Coalesced+c.Coalesced
	}
	if s.Read == 0 {
		fmt.Fprintln(a.out, "No new events: the sources hold nothing that was not taken in before.")
		if sum.Delivered == 0 {
			fmt.Fprintln(a.out, "So nothing was sent to anybody.")
		}
	} else {
		fmt.Fprintf(a.out, "%12s events read\n", n(s.Read))
		fmt.Fprintf(a.out, "%12s stopped at the gate: the same event was taken in before\n", n(s.Repeated))
		fmt.Fprintf(a.out, "%12s stale: seen before, or older than what the entity has\n", n(s.Stale))
		fmt.Fprintf(a.out, "%12s noise: nothing changed that matters to anybody\n", n(s.Noise))
		fmt.Fprintf(a.out, "%12s changed an entity\n", n(s.Merged))
	}
	if s.Dead > 0 {
		fmt.Fprintf(a.out, "%12s dead letters: pipeline dlq list -c %s\n", n(s.Dead), a.config)
	}
	switch {
	case sum.Pruned+sum.Held+sum.Passed+sum.Delivered > 0:
		a.customers(s.Customers, sum)
	case s.Read > 0:
		fmt.Fprintln(a.out, "\nNothing new in them, so nothing was sent to anybody.")
	}
	dirs := map[string]bool{}
	for _, service := range cfg.Services() {
		if f := service.Delivery.File; f != nil && !dirs[filepath.Dir(f.Path)] {
			dirs[filepath.Dir(f.Path)] = true
			fmt.Fprintf(a.out, "\nOutput: %s\n", filepath.Dir(f.Path))
		}
	}
}

// customers prints what became of the changed entities for each customer.
func (a *app) customers(customers []pipeline.CustomerSummary, sum pipeline.CustomerSummary) {
	n := humanize.Comma
	fmt.Fprintln(a.out, "\nWhat the changed entities meant for each customer:")
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "customer\tnot touched\theld back\tto send\tdelivered\t")
	row := func(name string, c pipeline.CustomerSummary) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", name, n(c.Pruned), n(c.Held), n(c.Passed), n(c.Delivered))
	}
	for _, c := range customers {
		row(c.Customer, c)
	}
	if len(customers) > 1 {
		row("all", sum)
	}
	_ = w.Flush()
	fmt.Fprint(a.out, "\nnot touched: nothing changed that the projection reads, so it was not evaluated\n"+
		"held back:   evaluated, and the same as what the customer has: a duplicate\n"+
		"to send:     changed for this customer, so it was let through\n")
	if sum.Coalesced > 0 {
		fmt.Fprintf(a.out, "%s changes were left out because a newer one of the same entity replaced them.\n", n(sum.Coalesced))
	}
	if all := sum.Pruned + sum.Held + sum.Passed; all > 0 {
		fmt.Fprintf(a.out, "Of %s possible sends %s were duplicates (%.0f %%).\n", n(all), n(all-sum.Passed), 100*float64(all-sum.Passed)/float64(all))
	}
}
