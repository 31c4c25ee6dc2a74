package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/spf13/cobra"
)

type deliveriesOptions struct {
	*app
	q            operate.DeliveryQuery
	since, until string
}

func newDeliveriesCommand(a *app) *cobra.Command {
	o := &deliveriesOptions{app: a}
	c := &cobra.Command{
		Use:   "deliveries",
		Short: "List attempts to deliver and what the targets answered, the oldest first",
		Long: "List the newest attempts to deliver a change: when, to which service, which version, how it ended, the status and\n" +
			"the first 200 bytes of the answer, or why there was none. They are kept for history.keep: of webhooks, and of\n" +
			"services with a history of their own. What was tried in the last second may be missing.\n\n" +
			"delivered: taken. failed: tried again. paused: the whole service was refused. refused, gave_up: a dead letter.\n" +
			"redecided: refused under this configuration, decided under an older one, and so decided again.",
		Example: "  weir deliveries -c weir.yaml --entity B-007 --service acme/ripeness@hook\n" +
			"  weir deliveries -c weir.yaml --entity B-007 --since 7d --json\n" +
			"  weir deliveries -c weir.yaml --service acme/ripeness@hook --since 2026-03-03 --until 2026-03-04",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().StringVar(&o.q.Entity, "entity", "", "only of this entity")
	c.Flags().StringVar(&o.q.Service, "service", "", "only of this service, customer/projection@sink, also of one that is not configured any more")
	c.Flags().StringVar(&o.since, "since", "", "only those since then: a time, or how long ago, such as 2h or 7d")
	c.Flags().StringVar(&o.until, "until", "", "only those before then")
	c.Flags().IntVar(&o.q.Limit, "limit", 100, "how many, the newest")
	o.completeServices(c, false)
	return o.needConfig(c)
}

func (o *deliveriesOptions) run(ctx context.Context) (err error) {
	if o.q.Limit < 1 {
		return &usageError{errors.New("--limit must be at least 1")}
	}
	now := time.Now()
	if o.q.Since, err = parseTime("--since", o.since, now); err != nil {
		return err
	}
	if o.q.Until, err = parseTime("--until", o.until, now); err != nil {
		return err
	}
	return o.withStore(ctx, func(s assemble.Store) error {
		all, err := operate.Deliveries(ctx, s, o.q)
		if err != nil {
			return usageOfRequest(err)
		}
		if !o.json && len(all) == o.q.Limit {
			fmt.Fprintf(o.out, "the newest %d, there may be more: --until %s, or --limit\n", o.q.Limit, all[0].At.Format(time.RFC3339Nano))
		}
		const empty = "no attempts are kept; history.keep says of which services and for how long"
		return list(&o.console, all, 0, empty, "TIME\tSERVICE\tENTITY\tVERSION\tOUTCOME\tSTATUS\tMS\tANSWER", nil, func(d *operate.Delivery) []any {
			status := ""
			if d.Status != 0 {
				status = fmt.Sprint(d.Status)
			}
			return []any{d.At.Format("2006-01-02T15:04:05.000Z"), d.Service, d.Entity, d.Version, d.Outcome, status, d.Millis, d.Answer}
		})
	})
}
