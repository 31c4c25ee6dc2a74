package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

func newDlqShowCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one dead letter with its payload",
		Example: "  weir dlq show -c weir.yaml 17",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := letterID(args[0])
			if err != nil {
				return err
			}
			return a.withStore(cmd.Context(), func(s assemble.Store) error {
				l, err := s.Letter(cmd.Context(), id)
				if errors.Is(err, store.ErrNotFound) {
					return fmt.Errorf("there is no dead letter %d", id)
				}
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(toLetterJSON(l))
				}
				w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
				row := func(name string, value any) {
					if v := fmt.Sprint(value); v != "" {
						fmt.Fprintf(w, "%s\t%s\n", name, terminal.Visible(v))
					}
				}
				row("id", l.ID)
				row("first", l.Created.UTC().Format(time.RFC3339))
				if l.Count > 1 {
					row("last", l.Last.UTC().Format(time.RFC3339))
					row("count", l.Count)
				}
				row("state", l.State)
				row("stage", l.Stage)
				row("reason", l.Code+": "+l.Reason)
				row("source", l.Source)
				row("service", l.Service)
				row("entity", l.Entity)
				row("event id", l.EventID)
				if l.Version != 0 {
					row("version", l.Version)
				}
				if l.Topic != "" {
					row("origin", fmt.Sprintf("%s, partition %d, offset %d", l.Topic, l.Part, l.Offset))
				}
				if l.Original != nil {
					row("edited", fmt.Sprintf("yes; it had %d bytes at first", len(l.Original)))
				}
				if err := w.Flush(); err != nil {
					return err
				}
				payload := string(l.Payload)
				if isTerminal(a.out) {
					payload = terminal.Harmless(payload)
				}
				_, err = fmt.Fprintf(a.out, "\n%s\n", payload)
				return err
			})
		},
	}
	return a.needConfig(c)
}
