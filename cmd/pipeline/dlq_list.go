package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

type dlqListOptions struct {
	*app
	f                   store.LetterFilter
	stage, state, group string
}

func newDlqListCommand(a *app) *cobra.Command {
	o := &dlqListOptions{app: a, f: store.LetterFilter{NewestFirst: true}}
	c := &cobra.Command{
		Use:     "list [ID]",
		Short:   "List dead letters, the newest first, or show one with its payload",
		Example: "  weir dlq list -c weir.yaml\n  weir dlq list -c weir.yaml 17\n  weir dlq list -c weir.yaml --group reason\n  weir dlq list -c weir.yaml --stage deliver --service acme/ripeness@hook",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return showLetter(cmd.Context(), a, args[0])
			}
			return o.run(cmd.Context())
		},
	}
	letterFilterFlags(c, &o.f, &o.stage)
	c.Flags().StringVar(&o.state, "state", string(store.LetterOpen), english.WordSeries(letterStates(), "or"))
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(letterStates(), cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&o.group, "group", "", "count them, by "+english.WordSeries(letterGroups, "or")+", the largest group first")
	_ = c.RegisterFlagCompletionFunc("group", cobra.FixedCompletions(letterGroups, cobra.ShellCompDirectiveNoFileComp))
	o.completeServices(c, false)
	c.Flags().Int64Var(&o.f.AfterID, "after", 0, "page on: those behind this id")
	c.Flags().IntVar(&o.f.Limit, "limit", 100, "how many")
	return o.needConfig(c)
}

// letterGroups are the values of --group.
var letterGroups = []string{"reason", "entity"} //nolint:gochecknoglobals // never written

func (o *dlqListOptions) run(ctx context.Context) error {
	if err := checkLetterWords(o.stage, o.state); err != nil {
		return err
	}
	if o.group != "" && !slices.Contains(letterGroups, o.group) {
		return &usageError{fmt.Errorf("--group %s: want %s", o.group, english.WordSeries(letterGroups, "or"))}
	}
	if err := checkPage(o.f.Limit, o.f.AfterID); err != nil {
		return err
	}
	o.f.Stage, o.f.State = store.Stage(o.stage), store.LetterState(o.state)
	if o.f.State == "all" {
		o.f.State = ""
	}
	if o.group != "" {
		return o.groups(ctx)
	}
	return o.withStore(ctx, func(s assemble.Store) error {
		letters, err := s.ListLetters(ctx, o.f)
		if err != nil {
			return err
		}
		all := make([]operate.Letter, len(letters))
		for i, l := range letters {
			all[i] = operate.LetterOf(l)
		}
		more := func(last *operate.Letter) string { return fmt.Sprint("--after ", last.ID) }
		return list(&o.console, all, o.f.Limit, "no dead letters", "ID\tFIRST\tLAST\tCOUNT\tSTAGE\tCODE\tWHERE\tENTITY\tREASON", more, func(l *operate.Letter) []any {
			return []any{l.ID, l.Created, l.Last, l.Count, l.Stage, l.Code, cmp.Or(l.Service, l.Source), strconv.Quote(l.Entity), l.Reason}
		})
	})
}

// groups prints the groups that the operators' page shows.
func (o *dlqListOptions) groups(ctx context.Context) error {
	o.f.ByEntity = o.group == "entity"
	return o.withStore(ctx, func(s assemble.Store) error {
		groups, err := s.GroupLetters(ctx, o.f, o.f.Limit)
		if err != nil {
			return err
		}
		return list(&o.console, groups, 0, "no dead letters", "LETTERS\tFIRST\tLAST\tSTAGE\tCODE\tWHERE\tENTITY\tREASON", nil, func(g *store.LetterGroup) []any {
			return []any{g.Letters, g.First, g.Last, g.Stage, g.Code, cmp.Or(g.Service, g.Source), strconv.Quote(g.Entity), g.Reason}
		})
	})
}
