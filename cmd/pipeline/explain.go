package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/spf13/cobra"
)

// reachTime bounds how long explain tries to reach the inbox. Without it the rest is explained.
const reachTime = 20 * time.Second

type explainOptions struct {
	*app
	in   explain.Input
	full bool
}

func newExplainCommand(a *app) *cobra.Command {
	o := &explainOptions{app: a}
	c := &cobra.Command{
		Use:   "explain ENTITY",
		Short: "Tell why a customer did or did not get an update: one entity, stage by stage",
		Long: "Tell one entity's story: its last events and what became of them, the source documents, the merged document\n" +
			"and which source each value comes from, what each service sees, what was sent and delivered, and in one\n" +
			"sentence per service why the customer did or did not get an update. Check services that were asked about it tell\n" +
			"whether the same content would pass again. Nothing is written.\n\n" +
			"Of the past, the last 8 records that were decided for the entity are kept, of stale ones in a row the first.\n" +
			"Exit status 1 when there is no such entity.",
		Example: "  weir explain B-007 -c weir.yaml\n  weir explain B-007 --service acme/ripeness@archive --payload\n" +
			"  weir explain B-007 --json",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	c.Flags().StringVar(&o.in.Service, "service", "", "only this service, customer/projection@sink or customer/name@check")
	c.Flags().BoolVar(&o.full, "full", false, "cut nothing to the width of a screen; so it is wherever the output is no terminal")
	c.Flags().BoolVar(&o.in.Payload, "payload", false, "with the payloads of the events, as long as the inbox keeps them")
	o.completeServices(c, true)
	return o.needConfig(c)
}

// run reads store and inbox where they can be reached as other commands reach them, else the
// store alone.
func (o *explainOptions) run(ctx context.Context, args []string) error {
	if o.in.Entity = args[0]; o.in.Entity == "" {
		return &usageError{errors.New("ENTITY is empty: that is no id")}
	}
	in := o.in
	full := o.full || !isTerminal(o.out)
	reaching, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(reachTime, cancel)
	defer timer.Stop()
	reached := false // the environment
	err := o.operating(reaching, func(a *app, env *operate.Env) error {
		if !timer.Stop() {
			// Later reads would be cut off.
			return fmt.Errorf("it took longer than %s to reach it", reachTime)
		}
		reached = true
		in := in
		in.Store, in.Inbox, in.Log = env.Store, env.Inbox, env.Log
		return printExplanation(reaching, a, in, full)
	})
	var usage *usageError
	var said *exitError
	if err == nil || reached || ctx.Err() != nil || errors.As(err, &usage) || errors.As(err, &said) {
		return err
	}
	in.NoInbox = err.Error()
	return o.withStore(ctx, func(s assemble.Store) error {
		in.Store = s
		return printExplanation(ctx, o.app, in, full)
	})
}

func printExplanation(ctx context.Context, a *app, in explain.Input, full bool) error {
	var err error
	if in.Config, err = a.load(); err != nil {
		return err
	}
	x, err := explain.Explain(ctx, in)
	if errors.Is(err, explain.ErrUnknownService) {
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(x)
	} else {
		err = x.Write(a.out, full)
	}
	if err == nil && !x.Found && len(x.Checks) == 0 {
		err = fmt.Errorf("entity %q is not stored", in.Entity)
	}
	return err
}
