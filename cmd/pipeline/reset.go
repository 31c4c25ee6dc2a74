package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/spf13/cobra"
)

type resetOptions struct {
	*app
	f     taskFlags
	order bool
}

func newResetCommand(a *app) *cobra.Command {
	o := &resetOptions{app: a}
	c := &cobra.Command{
		Use:   "reset [ENTITY...]",
		Short: "Set dam states to unknown: the next content passes, also an equal one",
		Long: "Set the dam states of customers to unknown: the next content passes, also an equal one. Nothing is sent by it;\n" +
			"replay sends the current state of entities. It asks for confirmation with the number, or takes --yes.\n\n" +
			"Rows of check services are reset as well, at once: the next content that a caller asks for passes.\n\n" +
			"With --order it drops what entities remember of their sources' sequences instead, after a producer began its\n" +
			"sequence anew or changed its form: the next event of each source is in order, whatever its sequence.",
		Example: "  weir reset -c weir.yaml B-007 B-008 --yes\n" +
			"  weir reset -c weir.yaml --customer acme --dry-run\n" +
			"  weir reset -c weir.yaml --service acme/ripeness@hook --reason \"they lost their database\" --yes\n" +
			"  weir reset -c weir.yaml --service acme/crm@check --yes\n" +
			"  weir reset -c weir.yaml --order B-007 --yes",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.f.add(o.app, c, true)
	c.Flags().BoolVar(&o.f.all, "all", false, "all entities")
	c.Flags().BoolVar(&o.order, "order", false, "drop the sequences of the sources, not the dam states")
	c.Flags().BoolVarP(&o.f.yes, "yes", "y", false, "do not ask")
	return o.needConfig(c)
}

func (o *resetOptions) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	o.f.entities = args
	kind := operate.Reset
	if o.order {
		kind = operate.ResetOrder
	}
	if o.f.dry {
		return startTask(ctx, o.app, kind, &o.f)
	}
	if !o.f.yes {
		cfg, err := o.load()
		if err != nil {
			return err
		}
		if _, err := o.f.task(kind, cfg, time.Now()); err != nil {
			return err
		}
		if o.f.list == "-" {
			return &usageError{errors.New("--entities - needs --yes: standard input cannot answer as well")}
		}
		question := ""
		if o.canAsk() {
			if err := withTask(ctx, o.app, kind, &o.f, func(_ *app, env *operate.Env, t operate.Task) error {
				r, err := env.Preview(ctx, t)
				question = resetQuestion(kind, r)
				return errors.Join(err, requireFound(r))
			}); err != nil {
				return err
			}
		}
		if err := o.confirm(ctx, question); err != nil {
			return err
		}
		o.f.yes = true
	}
	return startTask(ctx, o.app, kind, &o.f)
}

// resetQuestion returns the question for a previewed reset.
func resetQuestion(kind operate.Kind, r operate.Result) string {
	if kind == operate.ResetOrder {
		return "Reset the order of " + entities(r.Entities) + "?"
	}
	var rows, services, checked int64
	for _, s := range r.Services {
		if s.Check {
			checked++
		} else {
			rows, services = rows+s.Reset, services+1
		}
	}
	checks := checkRows(r.CheckRows) + " of " + english.Plural(int(checked), "check service", "check services")
	dam := fmt.Sprintf("%s (%s of %s)", entities(r.Entities), english.Plural(int(rows), "dam row", "dam rows"), english.Plural(int(services), "service", "services"))
	switch {
	case checked == 0:
		return "Reset " + dam + "?"
	case r.Entities == 0:
		return "Reset " + checks + "?"
	}
	return "Reset " + dam + " and " + checks + "?"
}
