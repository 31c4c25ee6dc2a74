package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate/imports"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// printImported prints one import.
func printImported(a *app, i imports.Import) error {
	if a.json {
		return a.printJSON(i)
	}
	options := string(i.Options)
	if options == "{}" {
		options = ""
	}
	n := humanize.Comma
	if err := a.facts("import", i.ID, "file", i.Name, "source", i.Source, "format", i.Format, "options", options, "state", i.State,
		"content", i.File, "bytes", n(i.Bytes), "by", i.Actor, "created", i.Created, "updated", i.Updated,
		"accepted", n(i.Accepted), "duplicate", n(i.Duplicate), "refused", n(i.Refused)); err != nil {
		return err
	}
	if i.Refused > 0 {
		fmt.Fprintf(a.out, "refused rows: weir import show -c %s %s --refused csv\n", a.config, i.ID)
	}
	return nil
}

// showFlags are the flags of weir import show.
type showFlags struct {
	before, refused string
	limit           int
}

func newImportShowCommand(a *app, f *importFlags) *cobra.Command {
	var show showFlags
	c := &cobra.Command{
		Use:   "show [ID]",
		Short: "List imports, the latest first, or show one; --refused prints its refused rows with reasons",
		Example: "  weir import show -c weir.yaml\n  weir import show -c weir.yaml 5f0c1d2e3a4b5968778695a4b3c2d1e0\n" +
			"  weir import show -c weir.yaml 5f0c1d2e3a4b5968778695a4b3c2d1e0 --refused csv > refused.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return showImport(cmd.Context(), a, f.tenant, args[0], show.refused)
			case show.refused != "":
				return usageOf(cmd, errors.New("--refused is of one import: missing ID"))
			}
			return listImports(cmd.Context(), a, f.tenant, &show)
		},
	}
	c.Flags().StringVar(&show.before, "before", "", "page on: only imports made before the one with this id")
	c.Flags().IntVar(&show.limit, "limit", 100, "how many")
	c.Flags().StringVar(&show.refused, "refused", "", "print the refused rows of the import as jsonl or csv")
	_ = c.RegisterFlagCompletionFunc("refused", cobra.FixedCompletions([]string{"jsonl", "csv"}, cobra.ShellCompDirectiveNoFileComp))
	return a.needConfig(c)
}

func listImports(ctx context.Context, a *app, tenant string, show *showFlags) error {
	if show.before != "" {
		if err := checkImportID(show.before); err != nil {
			return err
		}
	}
	if err := checkPage(show.limit, 0); err != nil {
		return err
	}
	return a.withStore(ctx, func(s assemble.Store) error {
		all, err := imports.List(ctx, s, tenant, show.before, show.limit)
		if err != nil {
			return err
		}
		more := func(last *imports.Import) string { return "--before " + last.ID }
		return list(&a.console, all, show.limit, "no imports", "ID\tCREATED\tSOURCE\tFILE\tSTATE\tACCEPTED\tDUPLICATE\tREFUSED", more, func(i *imports.Import) []any {
			return []any{i.ID, i.Created, i.Source, i.Name, i.State, i.Accepted, i.Duplicate, i.Refused}
		})
	})
}

func checkImportID(text string) error {
	if !imports.ValidID(text) {
		return &usageError{fmt.Errorf("%s is not the id of an import", terminal.Visible(text))}
	}
	return nil
}

// showImport prints one import, or its refused rows in a format.
func showImport(ctx context.Context, a *app, tenant, id, refused string) error {
	if err := checkImportID(id); err != nil {
		return err
	}
	as := imports.JSONL
	if refused != "" {
		var err error
		if as, err = imports.ParseFormat(refused); err != nil {
			return &usageError{err}
		}
	}
	return a.withStore(ctx, func(s assemble.Store) error {
		i, err := imports.Find(ctx, s, tenant, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("the tenant %s has no import %s", tenant, id)
		case err != nil:
			return err
		case refused != "":
			return imports.WriteErrors(ctx, s, i.ID, as, a.out)
		}
		return printImported(a, i)
	})
}
