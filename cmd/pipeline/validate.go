package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/doctor"
	"github.com/spf13/cobra"
)

func (a *app) validateCommand() *cobra.Command {
	var resolve bool
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check configuration and projections, all faults at once",
		Long: "Check configuration and projections: every fault with file, line, column, the value and what would be right.\n" +
			"Needs no network, and no secrets: references to variables that are not set are accepted.\n\n" +
			"With --resolve variables must be set, files be there, and store, gate, Kafka, sources and targets answer, and Kafka's\n" +
			"users may do what they need to. Nothing is changed there, and nothing sent. Status 1 when one does not answer, or\n" +
			"does not work; rights without which it works, but promises less, are warnings.",
		Example: "  weir validate -c weir.yaml\n  weir validate -c weir.yaml --resolve",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var options []config.Option
			if !resolve {
				options = append(options, config.AllowUnsetEnv())
			}
			cfg, err := a.load(options...)
			if err != nil {
				return err
			}
			var found []assemble.Probe
			if resolve {
				found = assemble.Resolve(cmd.Context(), cfg)
			}
			warnings := append(cfg.Warnings(), rightsOf(cmd.Context(), cfg, found)...)
			for _, warning := range warnings {
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
				all := map[string]any{"file": cfg.File, "sources": len(cfg.Sources), "customers": len(cfg.Customers), "projections": len(cfg.Projections), "services": names, "checks": checks, "resolved": found}
				if !resolve {
					delete(all, "resolved")
				}
				if err := a.printJSON(all); err != nil {
					return err
				}
				return unreachableError(found)
			}
			fmt.Fprintf(a.out, "%s is fine: %s, %s, %s, %s", cfg.File, english.Plural(len(cfg.Sources), "source", "sources"), english.Plural(len(cfg.Customers), "customer", "customers"),
				english.Plural(len(cfg.Projections), "projection", "projections"), english.Plural(len(services), "service", "services"))
			if len(cfg.Checks) > 0 {
				fmt.Fprintf(a.out, ", %s", english.Plural(len(cfg.Checks), "check service", "check services"))
			}
			fmt.Fprintln(a.out)
			for _, r := range found {
				if r.Error == "" {
					fmt.Fprintf(a.out, "%s: ok\n", r.What)
				} else {
					fmt.Fprintf(a.out, "%s: %s\n", r.What, r.Error)
				}
			}
			return unreachableError(found)
		},
	}
	c.Flags().BoolVar(&resolve, "resolve", false, "also look whether variables are set, files are there, and servers and targets answer")
	return a.needConfig(c)
}

// rightsOf looks what users may not do. What does not work is a thing that does not answer;
// the rest are warnings.
func rightsOf(ctx context.Context, cfg *config.Config, found []assemble.Probe) (warnings []string) {
	at := func(what string) int {
		return slices.IndexFunc(found, func(r assemble.Probe) bool { return r.What == what && r.Error == "" })
	}
	for _, f := range doctor.Rights(ctx, cfg, func(what string) bool { return at(what) >= 0 }) {
		text := f.Found + "; " + f.Do
		if i := at(f.What); f.Level == doctor.Fault && i >= 0 {
			found[i].Error = text
		} else {
			warnings = append(warnings, f.What+": "+text)
		}
	}
	return warnings
}

// unreachableError returns the error for systems that do not answer.
func unreachableError(found []assemble.Probe) error {
	n := 0
	for _, r := range found {
		if r.Error != "" {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s not usable", english.Plural(n, "thing is", "things are"))
}
