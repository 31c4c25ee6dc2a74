package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/spf13/cobra"
)

func newCustomerCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "customer", Short: "Offboard a customer"}
	c.AddCommand(newCustomerRemoveCommand(a))
	return c
}

func newAddCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "add", Short: "Add a customer"}
	c.AddCommand(newAddCustomerCommand(a))
	return c
}

type addCustomerOptions struct {
	*app
	s    starter
	sink string
	when string
}

func newAddCustomerCommand(a *app) *cobra.Command {
	o := &addCustomerOptions{app: a}
	c := &cobra.Command{
		Use:   "customer CUSTOMER",
		Short: "Write a customer's file, check it, and plan what it would get",
		Long: "Write a customer's file beside those of the configuration, with one projection to one sink, check it as validate does,\n" +
			"and tell what the customer would get of the stored entities. A file that is there is not overwritten; one that is not\n" +
			"usable is removed again. weir reload, or a start, brings it into force.",
		Example: "  weir add customer zest -c weir.yaml --sees id,price\n" +
			"  weir add customer zest -c weir.yaml --sees name=product.name,price --when 'doc.price > 0' \\\n" +
			"    --to 'webhook: {url: \"https://zest.example/hook\", secret: \"${ZEST_SECRET}\"}'",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	c.Flags().StringSliceVar(&o.s.sees, "sees", nil, "what the customer sees: members, or name=member, separated by commas")
	c.Flags().StringVar(&o.when, "when", "", "the filter, for instance 'doc.price > 0'")
	c.Flags().StringVar(&o.sink, "to", "", "the sink, as in a customer's file; a file in out/ unless it is given")
	c.Flags().StringVar(&o.s.projection, "projection", "first", "name of the projection")
	_ = c.MarkFlagRequired("sees")
	return o.needConfig(c)
}

func (o *addCustomerOptions) run(ctx context.Context, customer string) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	if customer == "" || filepath.Base(customer) != customer {
		return &usageError{fmt.Errorf("CUSTOMER %q: that is no name", customer)}
	}
	o.s.customer = customer
	file := ""
	for _, pattern := range cfg.CustomerFiles {
		path := inFolder(filepath.Dir(cfg.File), filepath.Join(filepath.Dir(pattern), customer+".yaml"))
		if ok, err := filepath.Match(inFolder(filepath.Dir(cfg.File), pattern), path); ok && err == nil {
			file = path
			break
		}
	}
	if file == "" {
		return hinted(fmt.Errorf("no pattern of customers in %s matches %s.yaml", cfg.File, customer), "add a pattern such as \"customers/*.yaml\" there")
	}
	to, err := filepath.Rel(filepath.Dir(file), inFolder(filepath.Dir(cfg.File), filepath.Join("out", customer+".jsonl")))
	if err != nil {
		return err
	}
	if o.sink == "" {
		o.sink = "file: {path: " + plain(to) + "}"
	}
	made, err := writeNew([]newFile{{file, o.s.view(o.when, o.sink), false}})
	if err != nil {
		return err
	}
	next, err := o.read()
	if err != nil {
		return errors.Join(o.configError(err, cfg.File), os.Remove(made[0]))
	}
	var effect *plan.Effect
	err = o.withStoreOf(ctx, next, func(s assemble.Store) (err error) {
		effect, err = plan.Compute(ctx, plan.Input{Candidate: next, Store: s, Samples: 1})
		return err
	})
	if o.json {
		return o.printJSON(map[string]any{"file": file, "plan": effect})
	}
	fmt.Fprintf(o.out, "made %s\n", file)
	switch {
	case err != nil:
		fmt.Fprintf(o.out, "what it would get is not known: %s\n", err)
	default:
		fmt.Fprintln(o.out)
		if err := ofCustomer(effect, customer).Write(o.out); err != nil {
			return err
		}
	}
	fmt.Fprintf(o.out, "\nNow:\n  weir reload -c %s, or start it\n  weir replay -c %s --outdated sends what is stored\n", o.config, o.config)
	return nil
}

// ofCustomer returns an effect with the services of a customer alone, by its first name.
func ofCustomer(e *plan.Effect, customer string) *plan.Effect {
	only := *e
	only.Services = slices.DeleteFunc(slices.Clone(e.Services), func(s plan.Service) bool { return customerOf(s.Service) != customer })
	return &only
}

type customerRemoveOptions struct {
	*app
	retract, forget, dry, yes bool
	rate, reason              string
}

func newCustomerRemoveCommand(a *app) *cobra.Command {
	o := &customerRemoveOptions{app: a}
	c := &cobra.Command{
		Use:   "remove CUSTOMER",
		Short: "Offboard a customer: retract what it has, then forget its state",
		Long: "Offboard a customer, in two steps that the configuration goes along with; --plan shows the numbers of either.\n\n" +
			"--retract sends a retraction of every entity that the customer has. leaving: true in its file must be in force, so\n" +
			"that no event sends more. The retractions are decided at --rate, and delivered at the pace of the target.\n\n" +
			"--forget deletes the state of its services, without sending anything: dam states, positions, dead letters, attempts,\n" +
			"pauses and rows of check services. The file must be gone. A customer that returns is sent everything.\n\n" +
			"Both are audited. After an interruption run the same command again.",
		Example: "  weir customer remove acme -c weir.yaml --retract --plan\n" +
			"  weir customer remove acme -c weir.yaml --retract --rate 200/s\n" +
			"  weir customer remove acme -c weir.yaml --forget --reason \"contract ended\"",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	c.Flags().BoolVar(&o.retract, "retract", false, "send retractions of everything that it has")
	c.Flags().BoolVar(&o.forget, "forget", false, "delete its state, send nothing")
	c.Flags().BoolVar(&o.dry, "plan", false, "show the numbers, do nothing")
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&o.rate, "rate", "", "retractions per second at most, for instance 200/s")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for the audit")
	c.MarkFlagsOneRequired("retract", "forget")
	c.MarkFlagsMutuallyExclusive("retract", "forget")
	c.MarkFlagsMutuallyExclusive("rate", "forget")
	return o.needConfig(c)
}

func (o *customerRemoveOptions) run(ctx context.Context, customer string) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	// Before it asks for a change of a file.
	if _, err := (&taskFlags{all: true, rate: o.rate}).task(operate.Replay, cfg, time.Now()); err != nil {
		return err
	}
	if err := checkReason(o.reason); err != nil {
		return err
	}
	found, configured := cfg.FindCustomer(customer)
	switch {
	case o.forget && configured:
		return hinted(fmt.Errorf("%s is a customer in %s: its state is in use", customer, found.File), "remove the file, and bring that into force: weir reload -c %s", o.config)
	case o.forget:
		return o.runForget(ctx, cfg, customer)
	case !configured:
		return hinted(fmt.Errorf("%s has no customer %s: nothing can be sent to it", cfg.File, customer), "put its file back with leaving: true, or use --forget")
	case o.dry:
		return o.withStoreOf(ctx, cfg, func(s assemble.Store) error {
			effect, err := plan.Compute(ctx, plan.Input{Candidate: cfg.Leave(found.First), Store: s})
			if err != nil {
				return err
			}
			if effect = ofCustomer(effect, found.First); o.json {
				return o.printJSON(effect)
			}
			return effect.Write(o.out)
		})
	case !found.Leaving:
		return hinted(fmt.Errorf("%s is not leaving: its next events would send what is retracted", customer), "write leaving: true into %s, bring that into force (weir reload -c %s), and repeat this command", found.File, o.config)
	}
	f := &taskFlags{customers: []string{found.First}, rate: o.rate, reason: cmp.Or(o.reason, "customer remove --retract")}
	if err := startTask(ctx, o.app, operate.Replay, f); err != nil || o.json {
		return err
	}
	fmt.Fprintf(o.out, "When weir status -c %s shows nothing queued for %s, remove %s, reload, and run:\n  weir customer remove %s -c %s --forget\n", o.config, customer, found.File, found.First, o.config)
	return nil
}

// runForget forgets a customer that the active configuration does not have.
func (o *customerRemoveOptions) runForget(ctx context.Context, cfg *config.Config, customer string) error {
	if err := o.mustBeActive(ctx, cfg); err != nil {
		return err
	}
	return o.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		f, err := operate.PreviewForget(ctx, s, customer)
		if err != nil {
			return usageOfRequest(err)
		}
		if o.dry {
			return o.printForgotten(f, true)
		}
		if !o.yes {
			var keeps int64
			for _, one := range f.Services {
				keeps += one.Keeps
			}
			question := fmt.Sprintf("Forget %s of %s?", english.Plural(int(f.States), "state", "states"), english.Plural(len(f.Services), "service", "services"))
			if keeps > 0 {
				question = fmt.Sprintf("%s was not retracted and stays with the customer. %s", strings.ToUpper(entities(keeps)[:1])+entities(keeps)[1:], question)
			}
			if err := o.confirm(ctx, question); err != nil {
				return err
			}
		}
		progress, stop := o.progressOf()
		defer stop()
		f, err = operate.Forget(ctx, s, customer, operate.Actor(), o.reason, progress)
		stop()
		if err != nil {
			return fmt.Errorf("job %d is not finished; the same command resumes it: %w", f.Job, err)
		}
		return o.printForgotten(f, false)
	})
}

func (o *customerRemoveOptions) printForgotten(f operate.Forgotten, preview bool) error {
	if o.json {
		return o.printJSON(f)
	}
	if !preview {
		_, err := fmt.Fprintf(o.out, "job %d: %s of %s forgotten\n", f.Job, english.Plural(int(f.States), "state", "states"), english.Plural(len(f.Services), "service", "services"))
		return err
	}
	fmt.Fprintln(o.out, "nothing was done, and nothing would be sent")
	n := humanize.Comma
	return table(&o.console, "SERVICE\tWOULD FORGET\tCUSTOMER KEEPS", f.Services, func(s *operate.ForgottenService) []any {
		return []any{s.Service, n(s.States), n(s.Keeps)}
	})
}
