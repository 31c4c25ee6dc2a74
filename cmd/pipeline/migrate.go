package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/spf13/cobra"
)

func newMigrateCommand(a *app) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:     "migrate",
		Short:   "Create or upgrade the state tables",
		Long:    "Create or upgrade the state tables. It does nothing when they are current; run does the same when it starts.",
		Example: "  weir migrate -c weir.yaml",
		RunE:    func(cmd *cobra.Command, _ []string) error { return migrate(cmd.Context(), a) },
	})
}

func migrate(ctx context.Context, a *app) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	s, err := assemble.OpenStore(ctx, cfg, logger(cfg, a.err))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := errors.Join(s.Migrate(ctx), s.Close()); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if a.json {
		return a.printJSON(map[string]bool{"current": true})
	}
	_, err = fmt.Fprintln(a.out, "the state tables are current")
	return err
}
