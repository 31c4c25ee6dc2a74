package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/spf13/cobra"
)

// exitEffect is plan's status, with --detailed-exitcode, for a configuration
// that would send something.
const exitEffect = 3

type planOptions struct {
	*app
	against  string
	samples  int
	detailed bool
}

func newPlanCommand(a *app) *cobra.Command {
	o := &planOptions{app: a}
	c := &cobra.Command{
		Use:   "plan",
		Short: "Tell what a configuration would send, retract and hold back, before it runs",
		Long: "Decide every stored entity under a configuration, without writing anything: per service how many entities would\n" +
			"be sent, retracted, newly held back or stay as they are, with samples. It reads the store of --against, or else the\n" +
			"candidate's own, also while a pipeline runs. Entities move to a new configuration at their next event or by\n" +
			"weir replay --outdated; that is when the effect shows.\n\n" +
			"The store has a hash of what a customer has, not the document. With --against, the configuration that runs now,\n" +
			"samples are differences field by field, and what would be sent anyway is told from what the new one causes.\n\n" +
			"Exit status: 0 done, 1 failed, 2 wrong usage; with --detailed-exitcode also 3: done, and something would be sent.",
		Example: "  weir plan -c new/weir.yaml\n  weir plan -c new/weir.yaml --against weir.yaml --samples 5\n" +
			"  weir plan -c weir.yaml --detailed-exitcode --json",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().StringVar(&o.against, "against", "", "the configuration that runs now, for differences")
	c.Flags().IntVar(&o.samples, "samples", 2, "how many samples per service")
	c.Flags().BoolVar(&o.detailed, "detailed-exitcode", false, fmt.Sprintf("end with status %d when something would be sent, for CI", exitEffect))
	_ = c.MarkFlagFilename("against", "yaml", "yml")
	return o.needConfig(c)
}

func (o *planOptions) run(ctx context.Context) error {
	if o.samples < 0 {
		return &usageError{errors.New("--samples: want 0 or more")}
	}
	candidate, err := o.load()
	if err != nil {
		return err
	}
	in := plan.Input{Candidate: candidate, Samples: o.samples}
	if o.against != "" {
		old := *o.app
		old.config, old.loaded = o.against, nil
		if in.Against, err = old.load(); err != nil {
			return err
		}
	}
	var effect *plan.Effect
	running := candidate
	if in.Against != nil {
		running = in.Against
	}
	err = o.withStoreOf(ctx, running, func(s assemble.Store) error {
		var stop func()
		in.Store = s
		in.Progress, stop = o.progressOf()
		defer stop()
		effect, err = plan.Compute(ctx, in)
		return err
	})
	if errors.Is(err, session.ErrNothingRan) || errors.Is(err, plan.ErrNothingRan) {
		// The hint of other commands, to run the configuration, would start the candidate.
		return hinted(err, "--against names the configuration that runs now, whose state is read")
	}
	if err != nil {
		return err
	}
	if o.json {
		err = o.printJSON(effect)
	} else {
		err = effect.Write(o.out)
	}
	if err == nil && o.detailed && effect.Changes() > 0 {
		return &exitError{exitEffect}
	}
	return err
}
