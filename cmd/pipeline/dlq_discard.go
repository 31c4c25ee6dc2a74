package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/spf13/cobra"
)

func newDlqDiscardCommand(a *app) *cobra.Command {
	f := &letterFlags{}
	return f.command(a, &cobra.Command{
		Use:     "discard [ID...]",
		Short:   "Set dead letters aside",
		Long:    "Set dead letters aside. They stay listed with --state discarded until their retention is over.",
		Example: "  weir dlq discard -c weir.yaml 17\n  weir dlq discard -c weir.yaml --all --code bad_json --reason \"the producer was broken\" --yes",
	}, "Discard", func(ctx context.Context, l operate.Letters) error {
		// The store alone is enough, and two processes may have it open.
		return a.withStore(ctx, func(s assemble.Store) error { return discardLetters(ctx, a, s, l, f.reason) })
	})
}

func discardLetters(ctx context.Context, a *app, s assemble.Store, l operate.Letters, reason string) error {
	shown, stop := a.progressOf()
	n, missing, err := operate.DiscardLetters(ctx, s, l, operate.Actor(), reason, shown)
	if stop(); err != nil {
		return err
	}
	if missing > 0 {
		err = fmt.Errorf("%s not discarded: not open, or not there", deadLetters(missing))
	}
	if a.json {
		return errors.Join(a.printJSON(map[string]int{"discarded": n}), err)
	}
	fmt.Fprintf(a.out, "%s discarded\n", deadLetters(n))
	return err
}
