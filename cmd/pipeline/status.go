package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/doctor"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

// statusTime bounds the whole command, askTime the answer of a process, of the store, and of
// everything else together, and probeTime a probe.
const (
	statusTime = 10 * time.Second
	askTime    = 3 * time.Second
	probeTime  = 8 * time.Second
)

type statusOptions struct {
	*app
	probe string
}

func newStatusCommand(a *app) *cobra.Command {
	o := &statusOptions{app: a}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show every problem on one screen: since when, why, and what to do",
		Long: "Show every problem on one screen, the worst first: unreachable servers, failing services, blocked sources, open dead\n" +
			"letters, a backfill that is due; since when, why in the target's words, and what to do. Below it, what is queued.\n" +
			"It asks the process at admin.listen. Queues are those of all processes; why a service fails is known to the process\n" +
			"that delivers it. If none answers, it shows the store's knowledge and the last report of each process.\n\n" +
			"Exit status 0 when all is well, 1 when there is a problem. For containers whose operators' listener is on loopback,\n" +
			"--probe alive tells by it whether the process is alive, and --probe ready whether it does its work.",
		Example: "  weir status -c weir.yaml\n  weir status --json\n  weir status -c weir.yaml --probe ready",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.probe != "" {
				return o.runProbe(cmd.Context())
			}
			return o.run(cmd.Context())
		},
	}
	c.Flags().StringVar(&o.probe, "probe", "", "ask the process one thing only: "+english.WordSeries(probes, "or"))
	_ = c.RegisterFlagCompletionFunc("probe", cobra.FixedCompletions(probes, cobra.ShellCompDirectiveNoFileComp))
	return o.needConfig(c)
}

// probes are the values of --probe.
var probes = []string{"alive", "ready"} //nolint:gochecknoglobals // never written

// runProbe asks the process at admin.listen whether it is alive, or ready.
func (o *statusOptions) runProbe(ctx context.Context) error {
	if !slices.Contains(probes, o.probe) {
		return &usageError{fmt.Errorf("--probe %s: want %s", o.probe, english.WordSeries(probes, "or"))}
	}
	cfg, err := o.load()
	if err != nil {
		return err
	}
	running, err := control.Look(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := running.Healthy(ctx, o.probe == "ready"); err != nil {
		return err
	}
	if o.json {
		return o.printJSON(map[string]bool{"ok": true})
	}
	fmt.Fprintln(o.out, "ok")
	return nil
}

func (o *statusOptions) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var s operate.Status
	cfg, err := o.read()
	if err == nil {
		s, err = readStatus(ctx, o.app, cfg)
	} else {
		s, err = faultyStatus(ctx, o.app, err)
	}
	if err != nil {
		return err
	}
	if o.json {
		if cfg != nil {
			o.addSamples(ctx, cfg, &s)
		}
		err = o.printJSON(s)
	} else {
		printStatus(o.app, s, time.Now())
	}
	if err == nil && s.Level != operate.LevelOK {
		return &exitError{exitFailed}
	}
	return err
}

// maxHolds bounds the holds that are shown with samples.
const maxHolds = 10

// addSamples adds samples to holds, as guard show does. A hold whose changes cannot be
// read has no samples.
func (o *statusOptions) addSamples(ctx context.Context, cfg *config.Config, s *operate.Status) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var held []*operate.Item
	for i := range s.Items {
		if item := &s.Items[i]; item.Hold != nil && len(held) < maxHolds {
			held = append(held, item)
		}
	}
	if len(held) == 0 {
		return
	}
	_ = o.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		for _, item := range held {
			if h, err := operate.Hold(ctx, s, item.What); err == nil {
				item.Hold = &h
			}
		}
		return nil
	})
}

// faultyStatus asks the process while a customer's file is not usable, and adds its faults.
func faultyStatus(ctx context.Context, a *app, fault error) (s operate.Status, err error) {
	main, err := assemble.Load(a.config, a.env, config.MainFile())
	if err != nil {
		return s, a.configError(fault, a.config)
	}
	running, err := control.Look(main)
	if err == nil {
		s, err = askStatus(ctx, running)
	}
	if err != nil {
		return s, a.configError(fault, a.config)
	}
	var faults *config.Faults
	if errors.As(fault, &faults) {
		for _, f := range faults.List {
			var since time.Time
			if info, err := os.Stat(f.File); err == nil {
				since = info.ModTime().UTC()
			}
			s.Items = append(s.Items, operate.Item{
				What: f.File, Level: operate.LevelDegraded, Since: since, Why: "not usable, the process keeps its earlier configuration: " + f.String(),
				Do: cmp.Or(f.Fix, "correct it (weir validate)"),
			})
		}
	}
	if s.Level == operate.LevelOK {
		s.Level = operate.LevelDegraded
	}
	s.Sort()
	return s, nil
}

// readStatus asks the process, or the store where none can be asked.
func readStatus(ctx context.Context, a *app, cfg *config.Config) (operate.Status, error) {
	running, err := control.Look(cfg)
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		var s operate.Status
		if s, err = askStatus(asking, running); err == nil {
			return s, nil
		}
	}
	var answered *control.StatusError
	if errors.As(err, &answered) {
		return operate.Status{}, hinted(err, "it asks for the token that admin.token has there")
	}
	if ctx.Err() != nil {
		return operate.Status{}, err
	}
	now := time.Now()
	s := storeStatus(ctx, a, cfg, err, now)
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, i := range doctor.Unreachable(asking, cfg) {
		if !slices.ContainsFunc(s.Items, func(o operate.Item) bool { return o.What == i.What }) {
			s.Items = append(s.Items, i)
		}
	}
	s.Sort()
	return s, nil
}

// storeStatus returns the store's knowledge, where no process could be asked.
func storeStatus(ctx context.Context, a *app, cfg *config.Config, unasked error, now time.Time) operate.Status {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	off := errors.Is(unasked, control.ErrOff)
	// Without servers the process that has the folder open is here, and would have answered.
	ended := cfg.Kafka.Embedded() && errors.Is(unasked, control.ErrNobody)
	lives := func(p *operate.Process) bool { return !ended && p.Alive(now) }
	var s operate.Status
	err := a.withStoreOf(ctx, cfg, func(store assemble.Store) (err error) {
		s, err = operate.StatusOfStore(ctx, store, serviceNames(cfg), unasked, lives, now)
		return err
	})
	if err != nil {
		s.Level, s.Unasked, s.Services = operate.LevelDown, unasked.Error(), len(cfg.Services())
		if errors.Is(err, session.ErrNothingRan) {
			s.Unasked = err.Error()
		} else {
			do := a.hintOf(err)
			if do == "" {
				do = remedy.Of("store", err)
			}
			s.Items = append(s.Items, operate.Item{What: "store", Level: operate.LevelDown, Why: strings.TrimPrefix(err.Error(), "store: "), Do: do})
		}
	}
	switch {
	case !slices.ContainsFunc(s.Processes, func(p operate.Process) bool { return lives(&p) }):
		if off && err == nil {
			s.Unasked = "no process runs: none reported to the store within a minute, and admin.listen is off"
		}
		s.Do = "weir run -c " + a.config + " starts one"
	case off:
		s.Do = "set admin.listen: a process that can be asked knows more"
	default: // it should have answered
		s.Do = "ask where it runs, or correct admin.listen"
		if s.Level == operate.LevelOK {
			s.Level = operate.LevelDegraded
		}
	}
	return s
}

// askStatus asks a process how it is.
func askStatus(ctx context.Context, running *control.Running) (operate.Status, error) {
	var health operate.Health
	text, err := running.Get(ctx, control.HealthPath)
	if err == nil {
		err = json.Unmarshal(text, &health)
	}
	if err != nil {
		return operate.Status{}, err
	}
	text, err = running.Get(ctx, control.MetricsPath)
	if err != nil {
		return operate.Status{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return operate.Status{}, err
	}
	return operate.StatusOf(health, metrics, time.Now()), nil
}

// printStatus shows a status on one screen: the worst items, and how many more there are.
func printStatus(a *app, s operate.Status, now time.Time) {
	const most = 12
	color := colors(a.out, a.env)
	ago := func(t time.Time) string {
		return fmt.Sprintf("%s (%s)", t.UTC().Format(time.RFC3339), max(0, now.Sub(t)).Round(time.Second))
	}
	moments := func(since, next time.Time) (text string) {
		if !since.IsZero() {
			text = ", since " + ago(since)
		}
		if !next.IsZero() {
			text += ", next try " + next.UTC().Format(time.RFC3339)
		}
		return text
	}
	fmt.Fprintf(a.out, "%s  %s", color.level(string(s.Level)), terminal.Visible(s.Verdict()))
	fmt.Fprintln(a.out, moments(s.Since, s.NextTry))
	if s.Do != "" {
		fmt.Fprintf(a.out, "    do: %s\n", s.Do)
	}
	for _, p := range s.Processes[:min(most, len(s.Processes))] {
		state := "reported " + string(p.Level)
		if p.Stopped {
			state = "stopped"
		}
		fmt.Fprintf(a.out, "    process %s (%s): %s, %s ago\n", terminal.Visible(p.Name), p.Roles, state, max(0, now.Sub(p.Seen)).Round(time.Second))
		if p.Error != "" && !p.Stopped {
			fmt.Fprintf(a.out, "        why: %s\n        do: %s\n", terminal.Visible(p.Error), p.Do)
		}
	}
	if !s.LastDecision.IsZero() {
		fmt.Fprintf(a.out, "    last decision: %s\n", ago(s.LastDecision))
	}
	for _, i := range s.Items[:min(most, len(s.Items))] {
		fmt.Fprintf(a.out, "\n%s  %s", color.level(string(i.Level)), color.bold(cmp.Or(a.renamed[i.What], i.What)))
		if i.Queued > 0 {
			bound := map[bool]string{true: "at most "}[i.AtMost]
			fmt.Fprintf(a.out, ", %s%s queued", bound, humanize.Comma(i.Queued))
		}
		if !i.Oldest.IsZero() {
			fmt.Fprintf(a.out, ", the oldest for %s", max(0, now.Sub(i.Oldest)).Round(time.Second))
		}
		fmt.Fprintf(a.out, "%s\n    why: %s\n", moments(i.Since, i.NextTry), terminal.Visible(i.Why))
		if i.Do != "" {
			fmt.Fprintf(a.out, "    do: %s\n", i.Do)
		}
	}
	if more := len(s.Items) - most; more > 0 {
		fmt.Fprintf(a.out, "\nand %d more: weir status -c %s --json\n", more, a.config)
	}
	if len(s.Items) == 0 && s.Error == "" {
		fmt.Fprintf(a.out, "    %s, nothing is queued\n", english.Plural(s.Services, "service", "services"))
	}
}
