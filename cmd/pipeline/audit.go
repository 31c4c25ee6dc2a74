package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/spf13/cobra"
)

// auditJSON is an audit row as --json prints it.
type auditJSON struct {
	ID      int64           `json:"id"`
	Time    time.Time       `json:"time"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action"`
	Reason  string          `json:"reason,omitempty"`
	Entity  string          `json:"entity,omitempty"`
	Service string          `json:"service,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

type auditOptions struct {
	*app
	after int64
	limit int
}

func newAuditCommand(a *app) *cobra.Command {
	o := &auditOptions{app: a}
	c := &cobra.Command{
		Use:     "audit",
		Short:   "List what operators did, the oldest first",
		Example: "  weir audit -c weir.yaml\n  weir audit -c weir.yaml --after 200 --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().Int64Var(&o.after, "after", 0, "page on: only larger ids")
	c.Flags().IntVar(&o.limit, "limit", 100, "how many")
	return o.needConfig(c)
}

func (o *auditOptions) run(ctx context.Context) error {
	if o.limit < 1 || o.after < 0 {
		return &usageError{fmt.Errorf("--limit must be at least 1 and --after not negative")}
	}
	return o.withStore(ctx, func(s assemble.Store) error {
		rows, err := s.Audits(ctx, o.after, o.limit)
		if err != nil {
			return err
		}
		if o.json {
			all := make([]auditJSON, len(rows))
			for i, r := range rows {
				all[i] = auditJSON{r.ID, r.Time, r.Actor, r.Action, r.Reason, r.Entity, r.Service, r.Detail}
			}
			return o.printJSON(all)
		}
		if len(rows) == 0 {
			fmt.Fprintln(o.out, "no operator's actions")
			return nil
		}
		w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tTIME\tACTOR\tACTION\tENTITY\tSERVICE\tREASON\tDETAIL")
		for _, r := range rows {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Time.UTC().Format(time.RFC3339), terminal.Visible(r.Actor), r.Action,
				cmp.Or(terminal.Visible(r.Entity), "-"), cmp.Or(terminal.Visible(r.Service), "-"), cmp.Or(terminal.Visible(r.Reason), "-"), cmp.Or(terminal.Visible(string(r.Detail)), "-"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if len(rows) == o.limit {
			fmt.Fprintf(o.out, "more: --after %d\n", rows[len(rows)-1].ID)
		}
		return nil
	})
}
