package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// pausedJSON is the result of pause and resume with --json.
type pausedJSON struct {
	Service string     `json:"service"`
	Paused  bool       `json:"paused"`
	Changed bool       `json:"changed"` // false: it was so already
	Since   *time.Time `json:"since,omitempty"`
	By      string     `json:"by,omitempty"`
	Why     string     `json:"why,omitempty"`
}

func newPauseCommand(a *app) *cobra.Command {
	return newPausingCommand(a, &cobra.Command{
		Use:   "pause SERVICE",
		Short: "Pause deliveries to a service; its changes queue until it is resumed",
		Long: "Pause deliveries to a service. Its changes queue until it is resumed, for as long as retention.changes; other\n" +
			"services are not affected. It takes effect in all processes within seconds, and survives restarts. No process needs\n" +
			"to run, since the store keeps it.",
		Example: "  weir pause acme/ripeness@hook -c weir.yaml --reason \"they move their database until Monday\"",
	}, true)
}

func newResumeCommand(a *app) *cobra.Command {
	return newPausingCommand(a, &cobra.Command{
		Use:   "resume SERVICE",
		Short: "Resume deliveries to a paused service",
		Long: "Resume deliveries to a service that an operator paused, in all processes within seconds. A service that its target\n" +
			"refuses resumes by itself once the target accepts it; --now retries it, and its failed changes, instead of after the\n" +
			"back-off. For that it asks the process at admin.listen, which must deliver the service.",
		Example: "  weir resume acme/ripeness@hook -c weir.yaml\n  weir resume acme/ripeness@hook --now -c weir.yaml",
	}, false)
}

// newPausingCommand completes the command that pauses, or resumes, a service.
func newPausingCommand(a *app, c *cobra.Command, pause bool) *cobra.Command {
	var reason string
	var now bool
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if now {
			return retryNow(cmd.Context(), a, args[0])
		}
		cfg, err := a.load()
		if err != nil {
			return err
		}
		return a.withStoreOf(cmd.Context(), cfg, func(s assemble.Store) error {
			return pauseService(cmd.Context(), a, cfg, s, args[0], pause, reason)
		})
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit and for those who look")
	if !pause {
		c.Flags().BoolVar(&now, "now", false, "retry a failing service now")
		c.MarkFlagsMutuallyExclusive("now", "reason")
	}
	a.completeService(c)
	return a.needConfig(c)
}

func pauseService(ctx context.Context, a *app, cfg *config.Config, s assemble.Store, name string, pause bool, reason string) error {
	before, err := operate.Paused(ctx, s)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	held, was := before[name]
	if held.Hold != nil && !pause {
		return hinted(fmt.Errorf("the guard holds %s: %s", name, held.Reason), "weir guard show %[1]s -c %[2]s, then weir guard release %[1]s -c %[2]s, weir guard discard %[1]s -c %[2]s or weir guard extend %[1]s -c %[2]s", name, a.config)
	}
	if !was || pause { // a paused service can be resumed even if the configuration lacks it
		if err := delivered(cfg, name); err != nil {
			return err
		}
	}
	change := operate.ResumeService
	if pause {
		change = operate.PauseService
	}
	if err := change(ctx, s, name, operate.Actor(), reason); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	after, err := operate.Paused(ctx, s)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return printPaused(a, name, before, after, pause)
}

func printPaused(a *app, name string, before, after map[string]store.Pause, pause bool) error {
	_, was := before[name]
	now, is := after[name]
	if a.json {
		r := pausedJSON{Service: name, Paused: is, Changed: was != is, By: now.Actor, Why: now.Reason}
		if is {
			r.Since = &now.Since
		}
		return a.printJSON(r)
	}
	name = a.cell(name)
	switch {
	case pause && was:
		fmt.Fprintf(a.out, "%s was paused already, since %s by %s", name, now.Since.Format(time.RFC3339), terminal.Visible(now.Actor))
		if now.Reason != "" {
			fmt.Fprintf(a.out, ": %s", terminal.Visible(now.Reason))
		}
		fmt.Fprintln(a.out)
	case pause:
		fmt.Fprintf(a.out, "%s is paused; running processes stop sending within some seconds. Its changes queue until it is resumed:\n  weir resume %s -c %s\n", name, name, a.config)
	case was:
		fmt.Fprintf(a.out, "%s is resumed; running processes send its queued changes within some seconds.\n", name)
	default:
		fmt.Fprintf(a.out, "%s was not paused by an operator. What keeps it: weir status -c %s\n", name, a.config)
	}
	return nil
}

// delivered fails for a name that is no service that the pipeline delivers.
func delivered(cfg *config.Config, name string) error {
	if isCheck(cfg, name) {
		return &usageError{fmt.Errorf("%s is a check service: the pipeline sends it nothing", name)}
	}
	names := serviceNames(cfg)
	if slices.Contains(names, name) {
		return nil
	}
	return unknownWord(fmt.Errorf("%s has no service %s", cfg.File, name), name, names)
}

// retryNow has the running process retry a service.
func retryNow(ctx context.Context, a *app, name string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if err := delivered(cfg, name); err != nil {
		return err
	}
	err = a.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		paused, err := operate.Paused(ctx, s)
		if by, is := paused[name]; err == nil && is {
			return hinted(fmt.Errorf("%s is paused by %s, so it is not retried", name, terminal.Visible(by.Actor)), "weir resume %s -c %s", name, a.config)
		}
		return err
	})
	if err != nil {
		return err
	}
	running, err := control.At(cfg)
	if err != nil {
		return withAlternative(err, "a service is also retried automatically")
	}
	switch found, err := running.Retry(ctx, name); {
	case err != nil:
		return err
	case !found:
		return hinted(fmt.Errorf("%s does not deliver %s", running, name), "run the command where the process with role deliver listens (admin.listen)")
	}
	if a.json {
		return a.printJSON(map[string]any{"service": name, "tries": true})
	}
	_, err = fmt.Fprintf(a.out, "%s is retried now; weir status -c %s shows the result\n", name, a.config)
	return err
}

// withAlternative adds a remedy and an alternative to an error of control.At.
func withAlternative(err error, instead string) error {
	switch {
	case errors.Is(err, control.ErrOff):
		return hinted(err, "set admin.listen and start the process again; %s", instead)
	case errors.Is(err, control.ErrNoToken):
		return hinted(err, "set admin.token and start the process again; %s", instead)
	}
	return err
}
