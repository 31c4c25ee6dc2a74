package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-86dfc502/weir/sources/postgres"
	"github.com/spf13/cobra"
)

func newSourceCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "source", Short: "Prepare databases for sources"}
	c.AddCommand(newPrepareCommand(a))
	return c
}

type prepareOptions struct {
	*app
	sql, again bool
}

func newPrepareCommand(a *app) *cobra.Command {
	o := &prepareOptions{app: a}
	c := &cobra.Command{
		Use:   "prepare [SOURCE]",
		Short: "Make the publication and the replication slot of a PostgreSQL source, or print the SQL",
		Long: "Make the publication and the replication slot of a PostgreSQL source, as far as they are missing; of all such\n" +
			"sources without SOURCE. From then on the server keeps its log until weir run has read it.",
		Example: "  weir source prepare -c weir.yaml\n  weir source prepare -c weir.yaml shop --sql",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	c.Flags().BoolVar(&o.sql, "sql", false, "print the statements and execute none")
	c.Flags().BoolVar(&o.again, "again", false, "drop the slot first, with the changes that were not read; the rows are read again")
	return o.needConfig(c)
}

// prepared is the result for one slot.
type prepared struct {
	Source     string   `json:"source"`
	Slot       string   `json:"slot"`
	Statements []string `json:"statements"`
}

func (o *prepareOptions) run(ctx context.Context, args []string) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	all, names, seen := []prepared{}, []string{}, map[string]bool{}
	for i := range cfg.Sources {
		input, ok := cfg.Sources[i].Input.(interface{ Setup() postgres.Setup })
		if !ok {
			continue
		}
		s := input.Setup()
		if seen[s.Source] {
			continue
		}
		seen[s.Source] = true
		names = append(names, s.Source)
		if len(args) > 0 && args[0] != s.Source {
			continue
		}
		statements, err := s.Prepare(ctx, o.sql, o.again, func(why error) { fmt.Fprintf(o.err, "source %s: %v\n", s.Source, why) })
		if err != nil {
			return fmt.Errorf("source %s: %w", s.Source, err)
		}
		all = append(all, prepared{s.Source, s.Slot, append([]string{}, statements...)})
	}
	if len(all) == 0 {
		return &usageError{fmt.Errorf("there is no such PostgreSQL source; the configuration has: %s", strings.Join(names, ", "))}
	}
	if o.json {
		return o.printJSON(all)
	}
	for _, p := range all {
		for _, sql := range p.Statements {
			fmt.Fprintf(o.out, "%s;\n", sql)
		}
		if len(p.Statements) == 0 {
			fmt.Fprintf(o.err, "source %s is prepared\n", p.Source)
		}
	}
	return nil
}
