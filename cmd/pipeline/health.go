package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

// healthTimeout bounds one probe.
const healthTimeout = 8 * time.Second

type healthOptions struct {
	*app
	ready bool
}

func newHealthCommand(a *app) *cobra.Command {
	o := &healthOptions{app: a}
	c := &cobra.Command{
		Use:   "health",
		Short: "Probe the process at admin.listen: exit 0 when it is alive",
		Long: "Probe the process at admin.listen, for containers whose operators' listener is on loopback. Exit 0 when it is\n" +
			"alive, or with --ready when it does its work; 1 otherwise.",
		Example: "  weir health -c weir.yaml\n  weir health -c weir.yaml --ready",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().BoolVar(&o.ready, "ready", false, "ask whether it does its work")
	return o.needConfig(c)
}

func (o *healthOptions) run(ctx context.Context) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	running, err := control.Look(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := running.Healthy(ctx, o.ready); err != nil {
		return err
	}
	if o.json {
		return o.printJSON(map[string]bool{"ok": true})
	}
	fmt.Fprintln(o.out, "ok")
	return nil
}
