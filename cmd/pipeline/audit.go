package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/store"
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
	if err := checkPage(o.limit, o.after); err != nil {
		return err
	}
	return o.withStore(ctx, func(s assemble.Store) error {
		rows, err := s.Audits(ctx, store.AuditFilter{AfterID: o.after, Limit: o.limit})
		if err != nil {
			return err
		}
		all := make([]auditJSON, len(rows))
		for i, r := range rows {
			all[i] = auditJSON{r.ID, r.Time, r.Actor, r.Action, r.Reason, r.Entity, r.Service, r.Detail}
		}
		more := func(last *auditJSON) string { return fmt.Sprint("--after ", last.ID) }
		return list(&o.console, all, o.limit, "no operator's actions", "ID\tTIME\tACTOR\tACTION\tENTITY\tSERVICE\tREASON\tDETAIL", more, func(r *auditJSON) []any {
			return []any{r.ID, r.Time, r.Actor, r.Action, r.Entity, r.Service, r.Reason, string(r.Detail)}
		})
	})
}
