package main

import (
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/spf13/cobra"
)

// exitEffect is plan's status, with --detailed-exitcode, for a configuration
// that would send something.
const exitEffect = 3

func (a *app) planCommand() *cobra.Command {
	var against string
	var samples int
	var detailed bool
	c := &cobra.Command{
		Use:   "plan",
		Short: "Tell what a configuration would send, retract and hold back, before it runs",
		Long: "Decide every stored entity under a configuration, without writing anything: per service how many entities would\n" +
			"be sent, retracted, newly held back or stay as they are, with samples. It reads the store that the configuration\n" +
			"names, also while a pipeline runs. Entities move to a new configuration at their next event or by\n" +
			"weir replay --outdated; that is when the effect shows.\n\n" +
			"The store has a hash of what a customer has, not the document. With --against, the configuration that runs now,\n" +
			"samples are differences field by field, and what would be sent anyway is told from what the new one causes.\n\n" +
			"Exit status: 0 done, 1 failed, 2 wrong usage; with --detailed-exitcode also 3: done, and something would be sent.",
		Example: "  weir plan -c new/weir.yaml\n  weir plan -c new/weir.yaml --against weir.yaml --samples 5\n" +
			"  weir plan -c weir.yaml --detailed-exitcode --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if samples < 0 {
				return &usageError{errors.New("--samples: want 0 or more")}
			}
			candidate, err := a.load()
			if err != nil {
				return err
			}
			in := plan.Input{Candidate: candidate, Samples: samples}
			if against != "" {
				old := *a
				old.config = against
				if in.Against, err = old.load(); err != nil {
					return err
				}
			}
			var effect *plan.Effect
			err = a.withStoreOf(cmd.Context(), candidate, func(s assemble.Store) error {
				var stop func()
				in.Store = s
				in.Progress, stop = a.progressOf()
				defer stop()
				effect, err = plan.Compute(cmd.Context(), in)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(effect)
			} else {
				err = effect.Write(a.out)
			}
			if err == nil && detailed && effect.Changes() > 0 {
				return &exitError{exitEffect}
			}
			return err
		},
	}
	c.Flags().StringVar(&against, "against", "", "the configuration that runs now, for differences")
	c.Flags().IntVar(&samples, "samples", 2, "how many samples per service")
	c.Flags().BoolVar(&detailed, "detailed-exitcode", false, fmt.Sprintf("end with status %d when something would be sent, for CI", exitEffect))
	_ = c.MarkFlagFilename("against", "yaml", "yml")
	return a.needConfig(c)
}
