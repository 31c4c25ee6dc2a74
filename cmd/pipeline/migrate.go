package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/spf13/cobra"
)

type migrateOptions struct {
	*app
}

func newMigrateCommand(a *app) *cobra.Command {
	o := &migrateOptions{app: a}
	c := &cobra.Command{
		Use:     "migrate",
		Short:   "Create or upgrade the state tables",
		Long:    "Create or upgrade the state tables. It does nothing when they are current; run does the same when it starts.",
		Example: "  weir migrate -c weir.yaml",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	return o.needConfig(c)
}

func (o *migrateOptions) run(ctx context.Context) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	s, err := assemble.OpenStore(ctx, cfg, logger(cfg, o.err))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := errors.Join(s.Migrate(ctx), s.Close()); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if o.json {
		return o.printJSON(map[string]bool{"current": true})
	}
	fmt.Fprintln(o.out, "the state tables are current")
	return nil
}
