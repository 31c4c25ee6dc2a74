package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

func newDlqReplayCommand(a *app) *cobra.Command {
	f := &letterFlags{}
	c := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Bring dead letters back to the start of the flow",
		Long: "Bring dead letters back to the start of the flow. An event enters again, as it was or as it was edited, unless its\n" +
			"source sent something newer for the entity since: then the letter is obsolete. A failed delivery is\n" +
			"decided again from the entity's current state; a sink that keeps every change gets the same change, late.",
		Example: "  weir dlq replay -c weir.yaml 17 18 --wait\n  weir dlq replay -c weir.yaml --all --service acme/ripeness@hook --yes",
	}
	c.Flags().BoolVar(&f.dry, "dry-run", false, "show what would be done with each, do nothing")
	c.Flags().BoolVar(&f.wait, "wait", false, "return when they are decided")
	return f.command(a, c, "Replay", func(ctx context.Context, l operate.Letters) error { return replayLetters(ctx, a, l, f) })
}

// replayLetters replays letters and fails when one of them cannot be replayed.
func replayLetters(ctx context.Context, a *app, l operate.Letters, f *letterFlags) error {
	return a.operating(ctx, func(a *app, env *operate.Env) error {
		// Ids and words for each letter, not the letters: some hundred bytes each.
		var all []operate.LetterReplay
		refused := 0
		err := env.ReplayLetters(ctx, l, f.reason, f.dry, func(r operate.LetterReplay) {
			if r.Refused != "" {
				refused++
			}
			all = append(all, r)
		})
		if err != nil {
			return err
		}
		if f.wait && !f.dry && refused < len(all) {
			if err := env.Wait(ctx); err != nil {
				return err
			}
			if err := env.FillSent(ctx, all); err != nil {
				return err
			}
		}
		if err := printReplayed(a, all, f.dry); err != nil {
			return err
		}
		if !a.json && !f.dry && refused < len(all) {
			printNext(a, env.Alone, f.wait)
		}
		if refused > 0 {
			return fmt.Errorf("%d of %s cannot be replayed", refused, deadLetters(len(all)))
		}
		return nil
	})
}

func printReplayed(a *app, all []operate.LetterReplay, dry bool) error {
	if a.json {
		if all == nil {
			all = []operate.LetterReplay{}
		}
		return a.printJSON(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no open dead letters")
	}
	for _, r := range all {
		switch {
		case r.Refused != "":
			fmt.Fprintf(a.out, "%d: stays: %s\n", r.ID, r.Refused)
		case dry:
			fmt.Fprintf(a.out, "%d: would be replayed: %s\n", r.ID, r.Way.Words())
		case r.State == store.LetterObsolete:
			fmt.Fprintf(a.out, "%d: obsolete: something newer came in between\n", r.ID)
		case r.State == store.LetterReplayed:
			sent := ""
			switch {
			case len(r.Sent) > 0:
				sent = "; sent on to " + strings.Join(r.Sent, ", ")
			case r.Sent != nil:
				sent = "; no customer's view changed, so nothing is sent"
			}
			fmt.Fprintf(a.out, "%d: replayed: %s%s\n", r.ID, r.Way.Words(), sent)
		case r.State == store.LetterOpen:
			fmt.Fprintf(a.out, "%d: open again: %s, and it failed again\n", r.ID, r.Way.Words())
		default:
			fmt.Fprintf(a.out, "%d: on its way: %s\n", r.ID, r.Way.Words())
		}
	}
	return nil
}
