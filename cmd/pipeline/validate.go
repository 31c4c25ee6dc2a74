package main

import (
	"fmt"

	"github.com/seed-86dfc502/weir/config"
	"github.com/spf13/cobra"
)

func (a *app) validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check configuration and projections, all faults at once",
		Long: "Check configuration and projections: every fault with file, line, column, the value and what would be right.\n" +
			"Needs no network, and no secrets: references to variables that are not set are accepted.",
		Example: "  pipeline validate -c weir.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load(config.AllowUnsetEnv())
			if err != nil {
				return err
			}
			for _, warning := range cfg.Warnings() {
				fmt.Fprintln(a.err, "warning:", warning)
			}
			services := cfg.Services()
			if a.json {
				names, checks := make([]string, len(services)), make([]string, len(cfg.Checks))
				for i, s := range services {
					names[i] = s.Name
				}
				for i := range cfg.Checks {
					checks[i] = cfg.Checks[i].Service()
				}
				return a.printJSON(map[string]any{"file": cfg.File, "sources": len(cfg.Sources), "customers": len(cfg.Customers), "projections": len(cfg.Projections), "services": names, "checks": checks})
			}
			fmt.Fprintf(a.out, "%s is fine: %d sources, %d customers, %d projections, %d services",
				cfg.File, len(cfg.Sources), len(cfg.Customers), len(cfg.Projections), len(services))
			if len(cfg.Checks) > 0 {
				fmt.Fprintf(a.out, ", %d check services", len(cfg.Checks))
			}
			fmt.Fprintln(a.out)
			return nil
		},
	}
	return a.needConfig(c)
}
