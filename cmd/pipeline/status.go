package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

// statusTime bounds how long a process may take to say how it is.
const statusTime = 10 * time.Second

func (a *app) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Tell on one screen who is behind, since when, why, and what to do",
		Long: "Tell on one screen who is behind, since when, why, and what to do about it, the worst first. It asks the process\n" +
			"at admin.listen: what waits is that of all processes, why a service does not get it is known to the one that delivers\n" +
			"it. Where no process runs it tells what the store knows.\n\n" +
			"Exit status 0 when all is well, 1 when something needs somebody.",
		Example: "  weir status -c weir.yaml\n  weir status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTime)
			defer cancel()
			s, err := a.status(ctx, cfg)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(s)
			} else {
				a.printStatus(s, time.Now())
			}
			if err == nil && s.Level != operate.LevelOK {
				return &exitError{exitFailed}
			}
			return err
		},
	}
	return a.needConfig(c)
}

// status asks the process, or the store where none runs.
func (a *app) status(ctx context.Context, cfg *config.Config) (operate.Status, error) {
	running, err := control.Look(cfg)
	if err == nil {
		var s operate.Status
		if s, err = askStatus(ctx, running); err == nil {
			return s, nil
		}
	}
	if !errors.Is(err, control.ErrNobody) {
		return operate.Status{}, err
	}
	s := operate.Status{Level: operate.LevelDown, Error: err.Error(), Do: "weir run -c " + a.config + " starts one", Behind: []operate.Behind{}, Letters: map[string]int64{}}
	err = a.withStoreOf(ctx, cfg, func(store assemble.Opened) error {
		counts, err := store.CountLetters(ctx)
		if err != nil {
			return err
		}
		for stage, n := range counts {
			if n > 0 {
				s.Letters[string(stage)] = n
			}
		}
		reached, err := operate.ReadReached(ctx, store)
		if err != nil {
			return err
		}
		numbers, err := store.KnownServices(ctx)
		if err != nil {
			return err
		}
		for _, service := range cfg.Services() {
			s.Services++
			if n := reached.Pending(numbers[service.Name]); n > 0 && numbers[service.Name] != 0 {
				s.Behind = append(s.Behind, operate.Behind{What: service.Name, Level: operate.LevelDown, Waiting: n, Why: "no process delivers it"})
			}
		}
		return nil
	})
	return s, err
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

// printStatus shows a status on one screen: of what is on its way only the number where there
// is much of it.
func (a *app) printStatus(s operate.Status, now time.Time) {
	const most = 12
	color := colors(a.out, a.env)
	fmt.Fprintf(a.out, "%s  %s\n", color.level(string(s.Level)), visible(s.Verdict()))
	if s.Do != "" {
		fmt.Fprintf(a.out, "    do: %s\n", s.Do)
	}
	for _, b := range s.Behind[:min(most, len(s.Behind))] {
		fmt.Fprintf(a.out, "\n%s  %s", color.level(string(b.Level)), color.bold(b.What))
		if b.Waiting > 0 {
			fmt.Fprintf(a.out, ", %s waiting", humanize.Comma(b.Waiting))
		}
		if !b.Since.IsZero() {
			fmt.Fprintf(a.out, ", since %s (%s)", b.Since.Format(time.RFC3339), max(0, now.Sub(b.Since)).Round(time.Second))
		}
		fmt.Fprintf(a.out, "\n    why: %s\n", visible(b.Why))
		if b.Do != "" {
			fmt.Fprintf(a.out, "    do: %s\n", b.Do)
		}
	}
	if more := len(s.Behind) - most; more > 0 {
		fmt.Fprintf(a.out, "\nand %d more: weir status -c %s --json\n", more, a.config)
	}
	for _, stage := range slices.Sorted(maps.Keys(s.Letters)) {
		n := s.Letters[stage]
		fmt.Fprintf(a.out, "\n%s of %s: weir dlq list -c %s --stage %s\n", english.Plural(int(n), "dead letter", "dead letters"), stage, a.config, stage)
	}
	if len(s.Behind) == 0 && s.Error == "" {
		fmt.Fprintf(a.out, "    %s, nothing waits\n", english.Plural(s.Services, "service", "services"))
	}
}
