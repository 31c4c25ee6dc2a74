package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/spf13/cobra"
)

type runOptions struct {
	*app
	role                string
	untilIdle, activate bool
	timeout             time.Duration
}

func newRunCommand(a *app) *cobra.Command {
	o := &runOptions{app: a}
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the pipeline until it is stopped",
		Long: "Run the pipeline until it is stopped: SIGTERM or SIGINT finish work in progress, a second signal ends at once.\n" +
			"SIGHUP reads the customers' files again, as weir reload does. A store, brokers or a source that do not answer at the start\n" +
			"are waited for, not ready; a wrong configuration ends it at once.\n" +
			"With --until-idle, standard error says which part is not done, and why; a run that stops before all is done ends with status 3.\n" +
			"Several processes with the same configuration share the work.",
		Example: "  weir run -c weir.yaml\n  weir run -c weir.yaml --until-idle\n  weir run -c weir.yaml --role work",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().StringVar(&o.role, "role", strings.Join(pipeline.AllRoles.Names(), ","), "what this process does, separated by commas")
	c.Flags().BoolVar(&o.untilIdle, "until-idle", false, "end when the sources are drained and everything is delivered")
	c.Flags().DurationVar(&o.timeout, "timeout", 0, "with --until-idle: stop after this time, with status 3 if work is left")
	c.Flags().BoolVar(&o.activate, "activate", false, "let this configuration replace a later one (a roll-back)")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(pipeline.AllRoles.Names(), cobra.ShellCompDirectiveNoFileComp))
	return o.needConfig(c)
}

func (o *runOptions) run(ctx context.Context) error {
	roles, err := parseRoles(o.role)
	if err != nil {
		return &usageError{err}
	}
	files := config.Reuse(&config.Cache{}) // a reload reads those that changed
	cfg, err := o.load(files)
	if err != nil {
		return err
	}
	cancel := func() {}
	switch {
	case o.timeout < 0 || o.timeout > 0 && !o.untilIdle:
		return &usageError{errors.New("--timeout: goes with --until-idle, and is a time like 30s or 5m")}
	case o.timeout > 0:
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	return runPipeline(ctx, o.app, cfg, pipeline.Options{
		Config: cfg, Roles: roles, UntilIdle: o.untilIdle, Activate: o.activate,
		Load: func() (*config.Config, error) { return assemble.Load(o.config, o.env, files) }, // a reload makes the sinks itself
	})
}

func parseRoles(text string) (r pipeline.Roles, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(word) {
		case "ingest":
			r.Ingest = true
		case "work":
			r.Work = true
		default:
			return r, fmt.Errorf("--role: %q is no role; want %s", word, english.WordSeries(pipeline.AllRoles.Names(), "or"))
		}
	}
	return r, nil
}

func runPipeline(ctx context.Context, a *app, cfg *config.Config, opt pipeline.Options) error {
	log := logger(cfg, a.err)
	for _, warning := range cfg.Warnings() {
		log.Warn(warning, "event", "config.warning")
	}
	log.Debug("set the memory limit of the Go runtime", "event", "memory.limit", "bytes", setMemoryLimit(int64(cfg.Limits.Memory)))
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	opt.Logger, opt.Registry = log, reg
	operators := &operators{reg: reg, log: log}
	opt.Page, opt.Link = operators.make, operators.link
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	start := time.Now()
	p, err := pipeline.Open(ctx, opt)
	if err != nil && ctx.Err() != nil {
		log.Info("stopped before it was running", "event", "process.stopped_early")
		if opt.UntilIdle {
			return &leftError{"it was not running yet"}
		}
		return nil
	}
	var faults *config.Faults
	if errors.As(err, &faults) { // of a file that the configuration names
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	operators.record(p)
	address, stopAdmin, err := p.ServeAdmin()
	if err != nil {
		return errors.Join(err, p.Close())
	}
	if address != "" {
		log.Info("the operators' listener listens", "event", "admin.listening", "address", address)
		operators.printLogin(a.err, cfg.Admin.TLS != nil, address)
	}
	stopProgress := runProgress(a, reg, p.Waits, opt.UntilIdle)
	stopReloads := reloads(hangups, p)
	err = p.Run(ctx)
	stopReloads()
	err = errors.Join(err, stopAdmin())
	stopProgress()
	if !opt.UntilIdle && !a.json {
		return err
	}
	sum, e := snapshot.Summarize(reg)
	if e != nil {
		return errors.Join(err, e)
	}
	s := runSummary{sum, p.Waits()}
	if len(s.Left) > 0 && err == nil {
		err = &leftError{pipeline.WaitText(s.Left)}
	}
	if a.json {
		if e := a.printJSON(s); e != nil {
			return errors.Join(err, e)
		}
		return err
	}
	printSummary(a, cfg, s, time.Since(start))
	return err
}

// runSummary is the result of a run. Left is the work that a run until idle did not finish.
type runSummary struct {
	snapshot.Summary
	Left []pipeline.Wait `json:"left,omitempty"`
}

// printSummary tells a newcomer what happened.
func printSummary(a *app, cfg *config.Config, s runSummary, took time.Duration) {
	n := humanize.Comma
	if len(s.Left) > 0 {
		fmt.Fprintf(a.out, "\nStopped after %s with work left: %s.\n\n", took.Round(10*time.Millisecond), pipeline.WaitText(s.Left))
	} else {
		fmt.Fprintf(a.out, "\nDone in %s.\n\n", took.Round(10*time.Millisecond))
	}
	sum := s.Sum()
	if s.Read == 0 {
		if len(s.Left) == 0 {
			fmt.Fprintln(a.out, "No new events: the sources hold no event that was not ingested before.")
		}
		if sum.Delivered == 0 && len(s.Left) == 0 {
			fmt.Fprintln(a.out, "So nothing was sent.")
		}
	} else {
		fmt.Fprintf(a.out, "%12s %s read\n", n(s.Read), english.PluralWord(int(s.Read), "event", "events"))
		fmt.Fprintf(a.out, "%12s rejected by the gate: the same event was ingested before\n", n(s.Repeated))
		fmt.Fprintf(a.out, "%12s stale: seen before, or older than what the entity has\n", n(s.Stale))
		fmt.Fprintf(a.out, "%12s noise: no effective change\n", n(s.Noise))
		fmt.Fprintf(a.out, "%12s changed an entity\n", n(s.Merged))
	}
	if s.Dead > 0 {
		fmt.Fprintf(a.out, "%12s %s: weir dlq list -c %s\n", n(s.Dead), english.PluralWord(int(s.Dead), "dead letter", "dead letters"), a.config)
	}
	switch {
	case sum.Pruned+sum.Filtered+sum.Incomplete+sum.Held+sum.Sent+sum.Delivered+sum.Dead > 0:
		printCustomers(a, s.Customers, sum)
	case s.Read > 0 && len(s.Left) == 0:
		fmt.Fprintln(a.out, "\nNothing new in them, so nothing was sent.")
	}
	dirs := map[string]bool{}
	for _, service := range cfg.Services() {
		f, ok := service.Delivery.Sink.(config.FileWriter)
		if !ok {
			continue
		}
		if dir := filepath.Dir(f.OutputFile()); !dirs[dir] {
			dirs[dir] = true
			if _, err := os.Stat(f.OutputFile()); err == nil {
				fmt.Fprintf(a.out, "\nOutput: %s\n", dir)
			}
		}
	}
}

// printCustomers prints the outcomes of the changed entities for each customer.
func printCustomers(a *app, customers []snapshot.CustomerSummary, sum snapshot.CustomerSummary) {
	n := humanize.Comma
	fmt.Fprintln(a.out, "\nWhat the changed entities meant for each customer:")
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "customer\tpruned\tfiltered\tincomplete\theld back\tsent\tdelivered\t")
	row := func(name string, c snapshot.CustomerSummary) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, n(c.Pruned), n(c.Filtered), n(c.Incomplete), n(c.Held), n(c.Sent), n(c.Delivered))
	}
	for _, c := range customers {
		row(c.Customer, c)
	}
	if len(customers) > 1 {
		row("all", sum)
	}
	_ = w.Flush()
	fmt.Fprint(a.out, "\n"+outcomes)
	if sum.Coalesced > 0 {
		fmt.Fprintf(a.out, "%s left out because a newer one of the same entity replaced %s.\n", english.Plural(int(sum.Coalesced), "change was", "changes were"), english.PluralWord(int(sum.Coalesced), "it", "them"))
	}
	if all := sum.Pruned + sum.Held + sum.Sent; all > 0 {
		saved := sum.Pruned + sum.Held
		fmt.Fprintf(a.out, "Of %s %s would have told the customer nothing new (%.0f %%): %s pruned, %s.\n", english.Plural(int(all), "possible send", "possible sends"), n(saved),
			100*float64(saved)/float64(all), n(sum.Pruned), english.Plural(int(sum.Held), "duplicate held back", "duplicates held back"))
	}
}

// outcomes explains the outcomes of an event for a service, in the words of the metrics.
const outcomes = `pruned:     nothing changed that it reads, or its filter requires another value: not evaluated
filtered:   the filter keeps it out, and the customer has nothing of it
incomplete: a required source has no document of it yet
held back:  the same as what the customer has: a duplicate
sent:       changed for this customer, so it was sent on
`
