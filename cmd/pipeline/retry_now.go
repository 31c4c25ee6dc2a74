package main

import (
	"context"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

func newRetryNowCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "retry-now SERVICE",
		Short: "Retry a failing service now",
		Long: "Retry a service now whose target is unreachable or refuses it, and its failed changes, instead of after the back-off.\n" +
			"It asks the process at admin.listen, which must deliver the service.",
		Example: "  weir retry-now acme/ripeness@hook -c weir.yaml",
		RunE:    func(cmd *cobra.Command, args []string) error { return retryNow(cmd.Context(), a, args[0]) },
	}
	a.completeService(c)
	return a.needConfig(c)
}

// retryNow retries in this process if it was asked, else asks the running one.
func retryNow(ctx context.Context, a *app, name string) error {
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
		_, err := fmt.Fprintf(a.out, "%s is retried now; weir status -c %s shows the result\n", name, a.config)
		return err
	}
	err = a.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		paused, err := operate.Suspended(ctx, s)
		if by, is := paused[name]; err == nil && is {
			return hinted(fmt.Errorf("%s is paused by %s, so it is not retried", name, terminal.Visible(by.By)), "weir resume %s -c %s", name, a.config)
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
	return a.forward(ctx, running, "")
}
