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
func printImported(a *app, i imports.Job) error {
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
		fmt.Fprintf(a.out, "refused rows: weir import errors -c %s %s\n", a.config, i.ID)
	}
	return nil
}

func newImportListCommand(a *app, f *importFlags) *cobra.Command {
	var before string
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List imports, the latest first",
		Example: "  weir import list -c weir.yaml\n  weir import list -c weir.yaml --tenant acme --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if before != "" {
				if err := checkImportID(before); err != nil {
					return err
				}
			}
			if limit < 1 {
				return &usageError{errors.New("--limit must be at least 1")}
			}
			return a.withStore(cmd.Context(), func(s assemble.Store) error {
				all, err := s.ListImports(cmd.Context(), f.tenant, before, limit)
				if err != nil {
					return err
				}
				if a.json {
					jobs := make([]imports.Job, len(all))
					for n, i := range all {
						jobs[n] = imports.JobOf(i)
					}
					return a.printJSON(jobs)
				}
				more := func() string { return "--before " + all[len(all)-1].ID }
				return a.page("no imports", "ID\tCREATED\tSOURCE\tFILE\tSTATE\tACCEPTED\tDUPLICATE\tREFUSED", len(all), limit, more, func(n int) []any {
					i, c := &all[n], &all[n].Counts
					return []any{i.ID, i.Created, i.Source, i.Name, i.State, c.Accepted, c.Duplicate, c.Refused}
				})
			})
		},
	}
	c.Flags().StringVar(&before, "before", "", "page on: only imports made before the one with this id")
	c.Flags().IntVar(&limit, "limit", 100, "how many")
	return a.needConfig(c)
}

func checkImportID(text string) error {
	if !imports.ValidID(text) {
		return &usageError{fmt.Errorf("%s is not the id of an import", terminal.Visible(text))}
	}
	return nil
}

// withImport runs f with the import of that id.
func withImport(ctx context.Context, a *app, tenant, id string, f func(s assemble.Store, i store.Import) error) error {
	if err := checkImportID(id); err != nil {
		return err
	}
	return a.withStore(ctx, func(s assemble.Store) error {
		i, err := s.Import(ctx, tenant, id)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("the tenant %s has no import %s", tenant, id)
		} else if err != nil {
			return err
		}
		return f(s, i)
	})
}

func newImportShowCommand(a *app, f *importFlags) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:     "show ID",
		Short:   "Show one import",
		Example: "  weir import show -c weir.yaml 5f0c1d2e3a4b5968778695a4b3c2d1e0",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withImport(cmd.Context(), a, f.tenant, args[0], func(_ assemble.Store, i store.Import) error { return printImported(a, imports.JobOf(i)) })
		},
	})
}

func newImportErrorsCommand(a *app, f *importFlags) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "errors ID",
		Short:   "Print the refused rows of an import, with reasons",
		Example: "  weir import errors -c weir.yaml 5f0c1d2e3a4b5968778695a4b3c2d1e0 --format csv > errors.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			as, err := imports.ParseFormat(format)
			if err != nil {
				return &usageError{err}
			}
			return withImport(cmd.Context(), a, f.tenant, args[0], func(s assemble.Store, i store.Import) error {
				return imports.WriteErrors(cmd.Context(), s, i.ID, as, a.out)
			})
		},
	}
	c.Flags().StringVar(&format, "format", "jsonl", "jsonl or csv")
	return a.needConfig(c)
}
