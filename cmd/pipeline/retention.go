package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// retentionJSON is what the command did, as --json prints it.
type retentionJSON struct {
	DryRun  bool        `json:"dry_run,omitempty"`
	Before  time.Time   `json:"before"`  // months that ended by then are over
	Dropped int         `json:"dropped"` // months; with dry_run those that would be
	Months  []monthJSON `json:"months"`  // as they were before
}

type monthJSON struct {
	Month string `json:"month"` // 2026-11
	Keys  int64  `json:"keys"`  // an estimate where there are many
	Over  bool   `json:"over"`
}

func (a *app) retentionCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use:   "retention",
		Short: "Drop the months of idempotency keys that are over now, not at night",
		Long: "Drop the months of idempotency keys whose keys are all older than api.keys.retention. A running pipeline does it every\n" +
			"night at api.keys.drop_at; this does it at once, beside it or without it. A key is new when it is over its time, whether\n" +
			"its month was dropped or not.",
		Example: "  weir retention -c weir.yaml --dry-run\n  weir retention -c weir.yaml --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := a.load()
			if err != nil {
				return err
			}
			return a.withStoreOf(ctx, c, func(s assemble.Store) error {
				stats, err := s.LedgerStats(ctx)
				if err != nil {
					return err
				}
				r := retentionJSON{DryRun: dry, Before: stats.Now.Add(-c.API.Keys.Retention.D()), Months: []monthJSON{}}
				var dropped []string
				for _, m := range stats.Months {
					over := !m.End().After(r.Before)
					r.Months = append(r.Months, monthJSON{m.Month.Format("2006-01"), m.Held, over})
					if over {
						dropped = append(dropped, m.Month.Format("2006-01"))
					}
				}
				if r.Dropped = len(dropped); !dry {
					if r.Dropped, err = s.RetainClaims(ctx, c.API.Keys.Retention.D()); err != nil {
						return err
					}
					if r.Dropped > 0 {
						detail, err := json.Marshal(map[string]any{"months": dropped})
						if err != nil {
							return err
						}
						if err := s.AddAudits(ctx, []store.Audit{{Actor: operate.Actor(), Action: "retention", Detail: detail}}); err != nil {
							return err
						}
					}
				}
				if a.json {
					return a.printJSON(r)
				}
				return a.printRetention(r)
			})
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be dropped")
	return a.needConfig(c)
}

func (a *app) printRetention(r retentionJSON) error {
	if len(r.Months) == 0 {
		fmt.Fprintln(a.out, "no idempotency keys")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MONTH\tKEYS\tFATE")
	for _, m := range r.Months {
		fate := "kept"
		switch {
		case m.Over && r.DryRun:
			fate = "would be dropped"
		case m.Over:
			fate = "dropped"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", m.Month, m.Keys, fate)
	}
	return w.Flush()
}
