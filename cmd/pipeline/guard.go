package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/spf13/cobra"
)

func newGuardCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "guard",
		Short: "List services that the guard holds, and release, discard or extend a hold",
		Long: "The guard holds a service before more of its entities would change within a window than its configuration allows\n" +
			"(guard in a customer's file). Its changes queue. An operator looks at them and decides.",
	}
	show := &cobra.Command{
		Use: "show [SERVICE]", Short: "List holds, or show one with ten samples before and after, by the fields that moved",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listHolds(cmd.Context(), a)
			}
			return showHold(cmd.Context(), a, args[0])
		},
	}
	c.AddCommand(a.needConfig(show))
	a.completeService(show)
	for _, x := range []struct{ do, short, long string }{
		{operate.Release, "Send what is held: the newest of each entity, to a log sink every change",
			"Send what is held. A state sink gets the newest change of each entity, a log sink every change in order."},
		{operate.Discard, "Drop the held changes that the guard counts, and resume",
			"Drop the held changes of the kind that the guard counted, retractions or updates, and resume. The target keeps its\n" +
				"content: these changes are refused, any other content of their entities is sent, and so is\n" +
				"weir replay ENTITY --force. All other queued changes are sent. The audit row has their number."},
		{operate.Extend, "Allow as many changes once more within the window that begins now",
			"Allow as many changes once more within the window that begins now, and resume. Beyond that the service is held again."},
	} {
		var reason string
		one := &cobra.Command{
			Use: x.do + " SERVICE", Short: x.short, Long: x.long,
			Example: fmt.Sprintf("  weir guard %s acme/ripeness@hook -c weir.yaml --reason \"the supplier left\"", x.do),
			RunE:    func(cmd *cobra.Command, args []string) error { return endHold(cmd.Context(), a, args[0], x.do, reason) },
		}
		one.Flags().StringVar(&reason, "reason", "", "why, for the audit")
		a.completeService(one)
		c.AddCommand(a.needConfig(one))
	}
	return c
}

func listHolds(ctx context.Context, a *app) error {
	return a.withStore(ctx, func(s assemble.Store) error {
		held, err := operate.Holds(ctx, s)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		return list(&a.console, held, 0, "the guard holds no service", "SERVICE\tSINCE\tWHY", nil, func(h *operate.Held) []any {
			return []any{h.Service, h.Since, h.Why}
		})
	})
}

func showHold(ctx context.Context, a *app, service string) error {
	return a.withStore(ctx, func(s assemble.Store) error {
		h, err := operate.Hold(ctx, s, service)
		if err != nil {
			return usageOfRequest(err)
		}
		if a.json {
			return a.printJSON(h)
		}
		h.Service = a.cell(h.Service)
		fmt.Fprintf(a.out, "%s is held since %s: %s\n%d queued changes are counted\n", h.Service, h.Since.Format(time.RFC3339), h.Why, h.Changes)
		for _, g := range h.Groups {
			what := "the service had none before, or the changes log no longer has it"
			switch {
			case len(g.Fields) > 0:
				what = strings.Join(g.Fields, ", ")
			case g.Samples[0].After == nil:
				what = "retracted"
			}
			fmt.Fprintf(a.out, "\n%s:\n", terminal.Visible(what))
			for _, s := range g.Samples {
				fmt.Fprintf(a.out, "  %s, version %s\n    before: %s\n    after:  %s\n", terminal.Visible(s.Entity), s.Version, document(s.Before), document(s.After))
			}
		}
		fmt.Fprintf(a.out, "\ndo: weir guard release %[1]s -c %[2]s, weir guard discard %[1]s -c %[2]s, or weir guard extend %[1]s -c %[2]s\n", h.Service, a.config)
		return nil
	})
}

// document formats a document, an absent one as –.
func document(doc []byte) string {
	if doc == nil {
		return "–"
	}
	return terminal.Visible(string(doc))
}

func endHold(ctx context.Context, a *app, service, do, reason string) error {
	return a.withStore(ctx, func(s assemble.Store) error {
		h, err := operate.EndHold(ctx, s, service, do, operate.Actor(), reason)
		if err != nil {
			return usageOfRequest(err)
		}
		if a.json {
			return a.printJSON(h)
		}
		service := a.cell(service)
		switch do {
		case operate.Release:
			fmt.Fprintf(a.out, "%s is released; running processes send what is held within some seconds.\n", service)
		case operate.Discard:
			fmt.Fprintf(a.out, "%d held changes of %s are discarded; running processes send the others within some seconds.\n", h.Changes, service)
		default:
			fmt.Fprintf(a.out, "%s may change %d more entities within %s.\n", service, h.Limit, h.Window)
		}
		return nil
	})
}
