package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

// pausedJSON is what pause and resume did, as --json prints it.
type pausedJSON struct {
	Service string     `json:"service"`
	Paused  bool       `json:"paused"`
	Changed bool       `json:"changed"` // false: it was so already
	Since   *time.Time `json:"since,omitempty"`
	By      string     `json:"by,omitempty"`
	Why     string     `json:"why,omitempty"`
}

func (a *app) pauseCommand() *cobra.Command {
	return a.pausingCommand(&cobra.Command{
		Use:   "pause SERVICE",
		Short: "Let a service get nothing until it is resumed; what comes for it waits",
		Long: "Let a service get nothing until it is resumed. What comes for it waits, for as long as kafka.changes.retention; other\n" +
			"services go on. It holds in all processes within some seconds, and over restarts. The store keeps it, so it can be\n" +
			"said whether a process runs or not.",
		Example: "  weir pause acme/ripeness@hook -c weir.yaml --reason \"they move their database until Monday\"",
	}, true)
}

func (a *app) resumeCommand() *cobra.Command {
	return a.pausingCommand(&cobra.Command{
		Use:   "resume SERVICE",
		Short: "Let a paused service get what waits for it",
		Long: "Let a service that was paused by an operator get what waits for it. In all processes within some seconds.\n" +
			"A service whose target refuses it goes on by itself when the target takes it; weir probe tries that at once.",
		Example: "  weir resume acme/ripeness@hook -c weir.yaml",
	}, false)
}

// pausingCommand completes the command that pauses, or resumes, a service.
func (a *app) pausingCommand(c *cobra.Command, pause bool) *cobra.Command {
	var reason string
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		return a.withStoreOf(cmd.Context(), cfg, func(s assemble.Store) error {
			return a.pause(cmd.Context(), cfg, s, args[0], pause, reason)
		})
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit and for those who look")
	a.completeService(c)
	return a.needConfig(c)
}

func (a *app) pause(ctx context.Context, cfg *config.Config, s assemble.Store, name string, pause bool, reason string) error {
	before, err := operate.Suspended(ctx, s)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	_, was := before[name]
	if !was || pause { // what was paused can be resumed, whatever the configuration has
		if err := delivered(cfg, name); err != nil {
			return err
		}
	}
	change := operate.ResumeService
	if pause {
		change = operate.SuspendService
	}
	if err := change(ctx, s, name, operate.Actor(), reason); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	after, err := operate.Suspended(ctx, s)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return a.printPaused(name, before, after, pause)
}

func (a *app) printPaused(name string, before, after map[string]deliver.Suspension, pause bool) error {
	_, was := before[name]
	now, is := after[name]
	if a.json {
		r := pausedJSON{Service: name, Paused: is, Changed: was != is, By: now.By, Why: now.Why}
		if is {
			r.Since = &now.Since
		}
		return a.printJSON(r)
	}
	switch {
	case pause && was:
		fmt.Fprintf(a.out, "%s was paused already, since %s by %s", name, now.Since.Format(time.RFC3339), terminal.Visible(now.By))
		if now.Why != "" {
			fmt.Fprintf(a.out, ": %s", terminal.Visible(now.Why))
		}
		fmt.Fprintln(a.out)
	case pause:
		fmt.Fprintf(a.out, "%s is paused; running processes stop sending within some seconds. What comes for it waits for:\n  weir resume %s -c %s\n", name, name, a.config)
	case was:
		fmt.Fprintf(a.out, "%s is resumed; running processes send what waits within some seconds.\n", name)
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
	var names []string
	for _, s := range cfg.Services() {
		if names = append(names, s.Name); s.Name == name {
			return nil
		}
	}
	return unknownWord(fmt.Errorf("%s has no service %s", cfg.File, name), name, names)
}

func (a *app) probeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "probe SERVICE",
		Short: "Let a service that waits for its target try now",
		Long: "Let a service that waits for its target, or that its target refuses, try now instead of when its pause is over. It asks\n" +
			"the process at admin.listen, which must deliver the service.",
		Example: "  weir probe acme/ripeness@hook -c weir.yaml",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.probe(cmd.Context(), args[0]) },
	}
	a.completeService(c)
	return a.needConfig(c)
}

// probe lets this process try, if it was asked, or asks the one that runs.
func (a *app) probe(ctx context.Context, name string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if err := delivered(cfg, name); err != nil {
		return err
	}
	if a.forwarded != nil {
		if !a.forwarded.probe(name) {
			return hinted(fmt.Errorf("the process that was asked does not deliver %s", name), "run the command where the process with role deliver listens (admin.listen)")
		}
		if a.json {
			return a.printJSON(map[string]any{"service": name, "tries": true})
		}
		_, err := fmt.Fprintf(a.out, "%s tries now; weir status -c %s says what came of it\n", name, a.config)
		return err
	}
	err = a.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		paused, err := operate.Suspended(ctx, s)
		if by, is := paused[name]; err == nil && is {
			return hinted(fmt.Errorf("%s is paused by %s, so it does not try", name, terminal.Visible(by.By)), "weir resume %s -c %s", name, a.config)
		}
		return err
	})
	if err != nil {
		return err
	}
	running, err := control.At(cfg)
	if err != nil {
		return withAlternative(err, "a service is tried again by itself, too")
	}
	return a.forward(ctx, running, "")
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
