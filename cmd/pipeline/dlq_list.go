package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

type dlqListOptions struct {
	*app
	f            store.LetterFilter
	stage, state string
}

func newDlqListCommand(a *app) *cobra.Command {
	o := &dlqListOptions{app: a, f: store.LetterFilter{NewestFirst: true}}
	c := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters, the newest first, without payloads",
		Example: "  weir dlq list -c weir.yaml\n  weir dlq list -c weir.yaml --stage deliver --service acme/ripeness@hook",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	letterFilterFlags(c, &o.f, &o.stage)
	c.Flags().StringVar(&o.state, "state", string(store.LetterOpen), english.WordSeries(letterStates(), "or"))
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(letterStates(), cobra.ShellCompDirectiveNoFileComp))
	o.completeServices(c, false)
	c.Flags().Int64Var(&o.f.AfterID, "after", 0, "page on: those behind this id")
	c.Flags().IntVar(&o.f.Limit, "limit", 100, "how many")
	return o.needConfig(c)
}

func (o *dlqListOptions) run(ctx context.Context) error {
	if err := checkLetterWords(o.stage, o.state); err != nil {
		return err
	}
	if o.f.Limit < 1 || o.f.AfterID < 0 {
		return &usageError{errors.New("--limit must be at least 1 and --after not negative")}
	}
	o.f.Stage, o.f.State = store.Stage(o.stage), store.LetterState(o.state)
	if o.f.State == "all" {
		o.f.State = ""
	}
	return o.withStore(ctx, func(s assemble.Store) error {
		letters, err := s.ListLetters(ctx, o.f)
		if err != nil {
			return err
		}
		if o.json {
			all := make([]letterJSON, len(letters))
			for i, l := range letters {
				all[i] = toLetterJSON(l)
			}
			return o.printJSON(all)
		}
		if len(letters) == 0 {
			fmt.Fprintln(o.out, "no dead letters")
			return nil
		}
		w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tFIRST\tLAST\tCOUNT\tSTAGE\tCODE\tWHERE\tENTITY\tREASON")
		for _, l := range letters {
			where := l.Source
			if l.Service != "" {
				where = l.Service
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%q\t%s\n", l.ID, l.Created.UTC().Format(time.RFC3339), l.Last.UTC().Format(time.RFC3339), l.Count, l.Stage, l.Code, terminal.Visible(where), l.Entity, terminal.Visible(l.Reason))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if len(letters) == o.f.Limit {
			fmt.Fprintf(o.out, "more: --after %d\n", letters[len(letters)-1].ID)
		}
		return nil
	})
}
