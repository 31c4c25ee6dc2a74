package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

type reloadOptions struct {
	*app
	activate bool
}

func newReloadCommand(a *app) *cobra.Command {
	o := &reloadOptions{app: a}
	c := &cobra.Command{
		Use:   "reload",
		Short: "Let the running process read the customers' files again",
		Long: "Let the running process read the customers' files again, as SIGHUP does. They are checked first, and refused\n" +
			"as a whole when something is wrong; the process keeps its earlier configuration. Only customers' files can be\n" +
			"changed this way. Known entities are sent under the new configuration at their next event, or by a replay.\n" +
			"Of several processes the one at admin.listen is asked; the others do nothing until they are reloaded too.",
		Example: "  weir reload -c weir.yaml\n  weir reload -c weir.yaml --activate",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().BoolVar(&o.activate, "activate", false, "let this configuration replace a later one (a roll-back)")
	return o.needConfig(c)
}

func (o *reloadOptions) run(ctx context.Context) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	running, err := control.At(cfg)
	if err != nil {
		return withAlternative(err, "SIGHUP reloads as well")
	}
	done, err := running.Reload(ctx, o.activate)
	var refused *control.ReloadRefused
	if errors.As(err, &refused) {
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	if o.json {
		return o.printJSON(done)
	}
	printReloaded(o.app, done)
	return nil
}

func printReloaded(a *app, r control.Reloaded) {
	if !r.Changed {
		fmt.Fprintf(a.out, "Nothing has changed: revision %d, %s.\n", r.Revision, countServices(r))
		return
	}
	fmt.Fprintf(a.out, "Revision %d is active, with %s.\n", r.Revision, countServices(r))
	if len(r.Added) > 0 {
		fmt.Fprintf(a.out, "New: %s\n", strings.Join(r.Added, ", "))
	}
	if slices.ContainsFunc(r.Added, func(name string) bool { return !strings.HasSuffix(name, "@check") }) {
		fmt.Fprintf(a.out, "Entities that are known already: weir replay -c %s --outdated\n", a.config)
	}
	if len(r.Removed) > 0 {
		fmt.Fprintf(a.out, "Removed, their state is kept: %s\n", strings.Join(r.Removed, ", "))
	}
	if len(r.GivenUp) > 0 {
		fmt.Fprintf(a.out, "Not ended within shutdown.timeout: %s. Unfinished work there was abandoned and is redelivered.\n", strings.Join(r.GivenUp, ", "))
	}
	if r.Pending {
		fmt.Fprintln(a.out, "The stages are still going over to it; the log of the process says what keeps them.")
	}
}

func countServices(r control.Reloaded) string {
	text := english.Plural(r.Services, "service", "services")
	if r.Checks > 0 {
		text += " and " + english.Plural(r.Checks, "check service", "check services")
	}
	return text
}

// reloads reloads at each hang-up signal, until the given function is called.
func reloads(hangups <-chan os.Signal, p *pipeline.Pipeline) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-hangups:
				_, _ = p.Reload(ctx, false) // Reload logs its result
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
