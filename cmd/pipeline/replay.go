package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// latestJob denotes the latest unfinished job.
const latestJob = -1

// taskFlags are the flags that select entities and services, and say how.
type taskFlags struct {
	entities            []string
	list                string
	services, customers []string
	projections         []string
	all, dry, wait, yes bool
	rate, since, until  string
	reason              string
	force, outdated     bool
	resume              int64
}

func (f *taskFlags) add(a *app, c *cobra.Command, checks bool) {
	c.Flags().StringVar(&f.list, "entities", "", "the entities in this file, one per line; - reads standard input")
	c.Flags().StringArrayVar(&f.services, "service", nil, "only this service, customer/projection@sink; may be repeated")
	c.Flags().StringArrayVar(&f.customers, "customer", nil, "only services of this customer; may be repeated")
	c.Flags().StringArrayVar(&f.projections, "projection", nil, "only services of this projection, customer/projection; may be repeated")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "show the numbers, do nothing")
	c.Flags().BoolVar(&f.wait, "wait", false, "return when everything is decided")
	c.Flags().StringVar(&f.rate, "rate", "", "entities per second at most, for instance 200/s")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit")
	_ = c.MarkFlagFilename("entities")
	a.completeServices(c, checks)
}

// servicesOf returns the services of a configuration, and its check services after them.
func servicesOf(cfg *config.Config, checks bool) []config.Service {
	if checks {
		return cfg.AllServices()
	}
	return cfg.Services()
}

// serviceNames returns the names of the services that the pipeline feeds.
func serviceNames(cfg *config.Config) (names []string) {
	for _, s := range cfg.Services() {
		names = append(names, s.Name)
	}
	return names
}

// completeServices completes names of the configuration in a shell, with check
// services for a command that knows them.
func (a *app) completeServices(c *cobra.Command, checks bool) {
	for flag, name := range map[string]func(config.Service) string{
		"service":    func(s config.Service) string { return s.Current },
		"customer":   func(s config.Service) string { return customerOf(s.Current) },
		"projection": func(s config.Service) string { return projectionOf(s.Current) },
	} {
		if c.Flag(flag) == nil {
			continue
		}
		_ = c.RegisterFlagCompletionFunc(flag, a.completeNames(checks && flag != "projection", name))
	}
}

// completeService completes the argument of a command that acts on one service.
func (a *app) completeService(c *cobra.Command) {
	names := a.completeNames(false, func(s config.Service) string { return s.Current })
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(c, args, begun)
	}
}

// completeNames completes one name of each service of the configuration.
func (a *app) completeNames(checks bool, name func(config.Service) string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		cfg, err := assemble.Load(a.config, a.env, config.AllowUnsetEnv())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, s := range servicesOf(cfg, checks) {
			if n := name(s); !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func isCheck(cfg *config.Config, service string) bool {
	return slices.ContainsFunc(cfg.Checks, func(c config.Check) bool { return c.Service() == service })
}

func customerOf(service string) string { name, _, _ := strings.Cut(service, "/"); return name }

func projectionOf(service string) string { name, _, _ := strings.Cut(service, "@"); return name }

// task makes the task that the flags describe, all but its list of entities.
func (f *taskFlags) task(kind operate.Kind, cfg *config.Config, now time.Time) (t operate.Task, err error) {
	t = operate.Task{Kind: kind, Force: f.force, Reason: f.reason}
	t.Select.All, t.Select.Outdated = f.all, f.outdated
	if f.rate != "" {
		number, per, _ := strings.Cut(f.rate, "/")
		if t.Rate, err = strconv.ParseFloat(number, 64); err != nil || !(t.Rate > 0 && t.Rate <= 1e9) || per != "" && per != "s" {
			return t, &usageError{fmt.Errorf("--rate %s: want a number of entities per second, such as 200/s", f.rate)}
		}
	}
	if t.Select.Since, err = parseTime("--since", f.since, now); err != nil {
		return t, err
	}
	if t.Select.Until, err = parseTime("--until", f.until, now); err != nil {
		return t, err
	}
	if f.until != "" && f.since == "" {
		return t, &usageError{errors.New("--until goes with --since")}
	}
	ways := 0
	for _, is := range []bool{len(f.entities) > 0, f.list != "", f.all, f.outdated, f.since != "", f.resume != 0} {
		if is {
			ways++
		}
	}
	limited := len(f.services)+len(f.customers)+len(f.projections) > 0
	if ways == 0 && limited {
		t.Select.All, ways = true, 1
	}
	if ways != 1 {
		return t, &usageError{errors.New("say which entities, in exactly one way: their ids, --entities, --all, --outdated, --since, --service, --customer, --projection or --resume")}
	}
	if t.Services, err = f.chosen(kind, cfg); err != nil {
		return t, err
	}
	if t.Select.Outdated && t.Services != nil {
		return t, &usageError{errors.New("--outdated moves entities as a whole: leave out services, customers and projections")}
	}
	for _, id := range f.entities {
		if id == "" || strings.ContainsAny(id, "\n\x00") {
			return t, &usageError{fmt.Errorf("ENTITY %q: that is no id", id)}
		}
	}
	return t, nil
}

// listed returns the list of entities, nil for a selection without one.
func (f *taskFlags) listed(a *app) (list io.ReadSeeker, done func(), err error) {
	switch {
	case len(f.entities) > 0:
		return strings.NewReader(strings.Join(f.entities, "\n") + "\n"), func() {}, nil
	case f.list != "":
		return a.seekable(f.list)
	}
	return nil, func() {}, nil
}

// chosen returns the services that flags name, for a reset check services too, or nil when none
// limits them.
func (f *taskFlags) chosen(kind operate.Kind, cfg *config.Config) ([]string, error) {
	if len(f.services)+len(f.customers)+len(f.projections) == 0 {
		return nil, nil
	}
	matched := map[string]bool{}
	var names []string
	known := map[string][]string{}
	for _, s := range servicesOf(cfg, kind == operate.Reset) {
		is := false
		for _, by := range []struct {
			flag   string
			wanted []string
			of     func(string) string
		}{{"service", f.services, func(name string) string { return name }}, {"customer", f.customers, customerOf}, {"projection", f.projections, projectionOf}} {
			if by.flag == "projection" && isCheck(cfg, s.Name) {
				continue
			}
			known[by.flag] = append(known[by.flag], by.of(s.Current))
			for _, name := range []string{by.of(s.Name), by.of(s.Current)} {
				if slices.Contains(by.wanted, name) {
					matched[by.flag+" "+name], is = true, true
				}
			}
		}
		if is {
			names = append(names, s.Name)
		}
	}
	for flag, wanted := range map[string][]string{"service": f.services, "customer": f.customers, "projection": f.projections} {
		for _, w := range wanted {
			if !matched[flag+" "+w] {
				if flag == "service" && isCheck(cfg, w) {
					return nil, &usageError{fmt.Errorf("--service %s: that is a check service: the pipeline sends it nothing", w)}
				}
				return nil, unknownWord(fmt.Errorf("--%s %s: %s has none of that name", flag, w, cfg.File), w, known[flag])
			}
		}
	}
	return names, nil
}

// parseTime reads a time, or how long ago it was; empty is the zero time.
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	var ago config.Duration // as files have it, with days
	if err := ago.UnmarshalText([]byte(s)); err == nil && ago > 0 {
		return now.Add(-ago.D()).UTC(), nil
	}
	return time.Time{}, &usageError{fmt.Errorf("%s %s: want a time like 2026-01-31T12:00:00Z (UTC where none is said), or how long ago, like 90m or 7d", flag, s)}
}

type replayOptions struct {
	*app
	f taskFlags
}

func newReplayCommand(a *app) *cobra.Command {
	o := &replayOptions{app: a}
	c := &cobra.Command{
		Use:   "replay [ENTITY...]",
		Short: "Decide again, from the current state of entities",
		Long: "Decide again, from the current state of entities: nothing stale is sent. A document equal to the customer's last one is held back,\n" +
			"unless --force. --outdated moves entities to the active configuration that were not evaluated under it yet.\n\n" +
			"It runs in batches. After an interruption run the same command again, or --resume; after a relative time such as\n" +
			"--since 2h, always --resume.",
		Example: "  weir replay -c weir.yaml B-007 --dry-run\n" +
			"  weir replay -c weir.yaml --customer acme --rate 200/s\n" +
			"  weir replay -c weir.yaml --since 2h --wait\n" +
			"  weir replay -c weir.yaml --outdated",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.f.add(o.app, c, false)
	c.Flags().BoolVar(&o.f.all, "all", false, "all entities")
	c.Flags().BoolVar(&o.f.outdated, "outdated", false, "entities that were last evaluated under another configuration: a backfill")
	c.Flags().StringVar(&o.f.since, "since", "", "entities with events since then: a time, or how long ago, such as 2h or 7d")
	c.Flags().StringVar(&o.f.until, "until", "", "and before then")
	c.Flags().BoolVar(&o.f.force, "force", false, "send also what equals the customer's last one")
	c.Flags().Int64Var(&o.f.resume, "resume", 0, "go on with an unfinished job: --resume for the latest, --resume=3 for job 3")
	c.Flags().Lookup("resume").NoOptDefVal = strconv.Itoa(latestJob)
	return o.needConfig(c)
}

func (o *replayOptions) run(cmd *cobra.Command, args []string) error {
	if o.f.resume == latestJob && len(args) == 1 {
		return &usageError{fmt.Errorf("%q is no argument: a job's number is part of the flag, like --resume=3", args[0])}
	}
	o.f.entities = args
	if cmd.Flags().Changed("resume") {
		if o.f.resume != latestJob && o.f.resume < 1 {
			return &usageError{fmt.Errorf("--resume=%d: that is no job's number", o.f.resume)}
		}
		if o.f.force || o.f.reason != "" || len(o.f.services)+len(o.f.customers)+len(o.f.projections) > 0 {
			return &usageError{errors.New("--resume continues a job as it began: of the other flags only --rate, --wait and --dry-run go with it")}
		}
	}
	return startTask(cmd.Context(), o.app, operate.Replay, &o.f)
}

// startTask runs a task, or previews it.
func startTask(ctx context.Context, a *app, kind operate.Kind, f *taskFlags) error {
	return withTask(ctx, a, kind, f, func(a *app, env *operate.Env, t operate.Task) error {
		if !f.dry {
			return runTask(ctx, a, env, t, f.wait)
		}
		result, err := env.Preview(ctx, t)
		if err != nil {
			return err
		}
		return printPreview(a, kind, result)
	})
}

// withTask runs do with the task of the flags.
func withTask(ctx context.Context, a *app, kind operate.Kind, f *taskFlags, do func(a *app, env *operate.Env, t operate.Task) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	t, err := f.task(kind, cfg, time.Now())
	if err != nil {
		return err
	}
	return a.operating(ctx, func(a *app, env *operate.Env) error {
		t := t
		list, done, err := f.listed(a)
		if err != nil {
			return err
		}
		defer done()
		if list != nil {
			t.Select.List = list
		}
		if f.resume != 0 {
			if t, err = resumedTask(ctx, env, kind, f.resume, t); err != nil {
				return err
			}
		}
		return do(a, env, t)
	})
}

// resumedTask returns the task of an unfinished job.
func resumedTask(ctx context.Context, env *operate.Env, kind operate.Kind, id int64, t operate.Task) (operate.Task, error) {
	jobs, err := env.Store.ListJobs(ctx, store.JobFilter{Kind: string(kind), State: store.JobOpen, Limit: 1000})
	if err != nil {
		return t, err
	}
	for _, j := range jobs {
		if id == latestJob || j.ID == id {
			again, err := operate.Resume(j)
			again.Rate = t.Rate
			return again, err
		}
	}
	if id == latestJob {
		return t, fmt.Errorf("there is no unfinished %s", kind)
	}
	return t, fmt.Errorf("there is no unfinished %s %d", kind, id)
}

func runTask(ctx context.Context, a *app, env *operate.Env, t operate.Task, wait bool) error {
	result, err := env.Run(ctx, t)
	switch {
	case errors.Is(err, store.ErrFenced):
		return fmt.Errorf("job %d: another process runs it: %w", result.Job, err)
	case err != nil && result.Job != 0 && !errors.As(err, new(*operate.InvalidRequestError)):
		return fmt.Errorf("job %d is not finished; the same command resumes it: %w", result.Job, err)
	case err != nil:
		return err
	}
	alone := env.Alone
	if wait {
		if err := env.Wait(ctx); err != nil {
			return err
		}
	}
	if a.json {
		return errors.Join(a.printJSON(struct {
			operate.Result
			Decided bool `json:"decided"`
		}{result, wait}), requireFound(result))
	}
	done := map[operate.Kind]string{operate.Replay: "decided again", operate.Reset: "reset", operate.ResetOrder: "without an order"}[t.Kind]
	if !wait {
		done = "to be " + done
	}
	said := entities(result.Entities) + " " + done
	switch only := result.Entities == 0; {
	case result.CheckRows > 0 && only:
		said = checkRows(result.CheckRows) + " reset"
	case result.CheckRows > 0:
		said += ", " + checkRows(result.CheckRows) + " reset"
	}
	if result.Resumed {
		said += ", counting what was done before it was cut off"
	}
	fmt.Fprintf(a.out, "job %d: %s\n", result.Job, said)
	if result.Unknown > 0 {
		fmt.Fprintf(a.out, "%s not known and left out\n", entities(result.Unknown))
	}
	if result.Entities > 0 && (t.Kind == operate.Replay || !wait) {
		printNext(a, alone, wait)
	}
	return requireFound(result)
}

// requireFound fails a command that named entities of which none exists: a mistyped id
// is no success.
func requireFound(r operate.Result) error {
	if r.Unknown > 0 && r.Entities == 0 && r.CheckRows == 0 {
		return errors.New("none of the named entities exists")
	}
	return nil
}

// printNext names the work that is left to the next run, if no process is running.
func printNext(a *app, alone, waited bool) {
	switch {
	case alone && waited:
		fmt.Fprintln(a.out, "What changed is sent by the next weir run.")
	case alone:
		fmt.Fprintln(a.out, "No process is running; the next weir run will do it.")
	}
}

func entities(n int64) string {
	return english.Plural(int(n), "entity", "entities")
}

func checkRows(n int64) string {
	return english.Plural(int(n), "check row", "check rows")
}

// previewLine summarizes a preview.
func previewLine(r operate.Result) string {
	switch {
	case r.CheckRows == 0:
		return entities(r.Entities)
	case r.Entities == 0:
		return checkRows(r.CheckRows)
	}
	return entities(r.Entities) + " and " + checkRows(r.CheckRows)
}

func printPreview(a *app, kind operate.Kind, r operate.Result) error {
	if a.json {
		return errors.Join(a.printJSON(r), requireFound(r))
	}
	fmt.Fprintf(a.out, "%s, nothing was done\n", previewLine(r))
	if r.Unknown > 0 {
		fmt.Fprintf(a.out, "%s not known\n", entities(r.Unknown))
	}
	if len(r.Services) == 0 {
		return requireFound(r)
	}
	n := humanize.Comma
	if kind == operate.Reset {
		return table(&a.console, "SERVICE\tWOULD RESET", r.Services, func(s *operate.ServiceEffect) []any { return []any{s.Service, n(s.Reset)} })
	}
	return table(&a.console, "SERVICE\tWOULD SEND\tWOULD HOLD BACK\tWOULD FAIL", r.Services, func(s *operate.ServiceEffect) []any {
		return []any{s.Service, n(s.Send), n(s.Hold), n(s.Fail)}
	})
}
