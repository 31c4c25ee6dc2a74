package main

import (
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/spf13/cobra"
)

func (a *app) migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "migrate",
		Short:   "Create or upgrade the state tables",
		Long:    "Create or upgrade the state tables. It does nothing when they are current; run does the same when it starts.",
		Example: "  weir migrate -c weir.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			s, err := assemble.OpenStore(cmd.Context(), cfg, logger(cfg, a.err))
			if err != nil {
				return fmt.Errorf("store: %w", err)
			}
			if err := errors.Join(s.Migrate(cmd.Context()), s.Close()); err != nil {
				return fmt.Errorf("store: %w", err)
			}
			if a.json {
				return a.printJSON(map[string]bool{"current": true})
			}
			fmt.Fprintln(a.out, "the state tables are current")
			return nil
		},
	}
	return a.needConfig(c)
}
