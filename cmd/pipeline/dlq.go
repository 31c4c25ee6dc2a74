package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

func (a *app) dlqCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: what could not be ingested, decided or delivered",
	}
	c.AddCommand(a.dlqListCommand(), a.dlqShowCommand(), a.dlqEditCommand(), a.dlqReplayCommand(), a.dlqDiscardCommand())
	return c
}

// letterJSON is a dead letter as --json prints it.
type letterJSON struct {
	ID            int64             `json:"id"`
	Created       time.Time         `json:"created"` // when it died first
	Last          time.Time         `json:"last"`    // when it died last
	Count         int64             `json:"count"`   // how often it died
	State         store.LetterState `json:"state"`
	Stage         store.Stage       `json:"stage"`
	Code          string            `json:"code"`
	Reason        string            `json:"reason"`
	Source        string            `json:"source,omitempty"`
	Service       string            `json:"service,omitempty"`
	Entity        string            `json:"entity,omitempty"`
	EventID       string            `json:"event_id,omitempty"`
	Version       string            `json:"version,omitempty"` // generation:offset
	Topic         string            `json:"topic,omitempty"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 string            `json:"payload_base64,omitempty"` // when the bytes are not UTF-8
	Edited        bool              `json:"edited,omitempty"`         // the first payload is kept in the store
}

func toLetterJSON(l store.DeadLetter) letterJSON {
	version := ""
	if l.Version != 0 {
		version = l.Version.String()
	}
	j := letterJSON{
		ID: l.ID, Created: l.Created, Last: l.Last, Count: l.Count, State: l.State, Stage: l.Stage, Code: l.Code, Reason: l.Reason, Source: l.Source,
		Service: l.Service, Entity: l.Entity, EventID: l.EventID, Version: version, Topic: l.Topic, Partition: l.Part, Offset: l.Offset,
		Edited: l.Original != nil,
	}
	switch {
	case l.Payload == nil:
	case utf8.Valid(l.Payload):
		text := string(l.Payload)
		j.Payload = &text
	default:
		j.PayloadBase64 = base64.StdEncoding.EncodeToString(l.Payload)
	}
	return j
}

func (a *app) dlqListCommand() *cobra.Command {
	f := store.LetterFilter{NewestFirst: true}
	var stage, state string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters, the newest first, without payloads",
		Example: "  weir dlq list -c weir.yaml\n  weir dlq list -c weir.yaml --stage deliver --service acme/ripeness@hook",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLetterWords(stage, state); err != nil {
				return err
			}
			if f.Limit < 1 || f.AfterID < 0 {
				return &usageError{errors.New("--limit must be at least 1 and --after not negative")}
			}
			f.Stage, f.State = store.Stage(stage), store.LetterState(state)
			if f.State == "all" {
				f.State = ""
			}
			return a.withStore(cmd.Context(), func(s assemble.Store) error {
				letters, err := s.ListLetters(cmd.Context(), f)
				if err != nil {
					return err
				}
				if a.json {
					all := make([]letterJSON, len(letters))
					for i, l := range letters {
						all[i] = toLetterJSON(l)
					}
					return a.printJSON(all)
				}
				if len(letters) == 0 {
					fmt.Fprintln(a.out, "no dead letters")
					return nil
				}
				w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
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
				if len(letters) == f.Limit {
					fmt.Fprintf(a.out, "more: --after %d\n", letters[len(letters)-1].ID)
				}
				return nil
			})
		},
	}
	letterFilterFlags(c, &f, &stage)
	c.Flags().StringVar(&state, "state", string(store.LetterOpen), "open, replayed, obsolete, discarded or all")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"open", "replayed", "obsolete", "discarded", "all"}, cobra.ShellCompDirectiveNoFileComp))
	a.completeServices(c, false)
	c.Flags().Int64Var(&f.AfterID, "after", 0, "page on: those behind this id")
	c.Flags().IntVar(&f.Limit, "limit", 100, "how many")
	return a.needConfig(c)
}

func (a *app) dlqShowCommand() *cobra.Command {
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
