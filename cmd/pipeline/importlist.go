package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// printImported prints one import for people.
func printImported(a *app, i store.Import, fresh bool) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name string, value any) {
		if v := fmt.Sprint(value); v != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, terminal.Visible(v))
		}
	}
	row("import", i.ID)
	if !fresh {
		row("", "the same file came before")
	}
	row("file", i.Name)
	row("source", i.Source)
	row("format", i.Format)
	if string(i.Options) != "{}" {
		row("options", string(i.Options))
	}
	row("state", i.State)
	row("why", i.Failure)
	row("sha256", imports.JobOf(i).Fingerprint)
	row("bytes", humanize.Comma(i.Bytes))
	row("by", i.Actor)
	row("created", i.Created.UTC().Format(time.RFC3339))
	row("updated", i.Updated.UTC().Format(time.RFC3339))
	row("chunks", fmt.Sprintf("%d of %d done", i.Next, i.Chunks))
	row("accepted", humanize.Comma(i.Counts.Accepted))
	row("duplicate", humanize.Comma(i.Counts.Duplicate))
	row("invalid", humanize.Comma(i.Counts.Invalid))
	row("conflicting", humanize.Comma(i.Counts.Conflicting))
	if err := w.Flush(); err != nil {
		return err
	}
	if i.Counts.Rows() > i.Counts.Accepted {
		fmt.Fprintf(a.out, "rows that were not accepted: weir import errors -c %s %s\n", a.config, i.ID)
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
			var from store.ClaimID
			var err error
			if before != "" {
				if from, err = importID(before); err != nil {
					return err
				}
			}
			if limit < 1 {
				return &usageError{errors.New("--limit must be at least 1")}
			}
			return a.withStore(cmd.Context(), func(s assemble.Store) error {
				all, err := s.ListImports(cmd.Context(), f.tenant, from, limit)
				if err != nil {
					return err
				}
				if a.json {
					jobs := make([]importedJSON, len(all))
					for n, i := range all {
						jobs[n].Job = imports.JobOf(i)
					}
					return a.printJSON(jobs)
				}
				if len(all) == 0 {
					fmt.Fprintln(a.out, "no imports")
					return nil
				}
				w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tCREATED\tSOURCE\tFILE\tSTATE\tACCEPTED\tDUPLICATE\tINVALID\tCONFLICTING")
				for _, i := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", i.ID, i.Created.UTC().Format(time.RFC3339), i.Source, cmp.Or(terminal.Visible(i.Name), "-"), i.State,
						i.Counts.Accepted, i.Counts.Duplicate, i.Counts.Invalid, i.Counts.Conflicting)
				}
				if err := w.Flush(); err != nil {
					return err
				}
				if len(all) == limit {
					fmt.Fprintf(a.out, "more: --before %s\n", all[len(all)-1].ID)
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&before, "before", "", "page on: only imports made before the one with this id")
	c.Flags().IntVar(&limit, "limit", 100, "how many")
	return a.needConfig(c)
}

func importID(text string) (store.ClaimID, error) {
	id, err := store.ParseClaimID(text)
	if err != nil {
		return id, &usageError{fmt.Errorf("%s is not the id of an import", terminal.Visible(text))}
	}
	return id, nil
}

// withImport runs f with the import of that id.
func withImport(ctx context.Context, a *app, tenant, text string, f func(s assemble.Store, i store.Import) error) error {
	id, err := importID(text)
	if err != nil {
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

// printImport prints an import.
func printImport(a *app, i store.Import) error {
	if a.json {
		return a.printJSON(importedJSON{Job: imports.JobOf(i)})
	}
	return printImported(a, i, true)
}

func newImportShowCommand(a *app, f *importFlags) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:     "show ID",
		Short:   "Show one import",
		Example: "  weir import show -c weir.yaml 019ab2c4-5d6e-7f80-9a1b-2c3d4e5f6071",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withImport(cmd.Context(), a, f.tenant, args[0], func(_ assemble.Store, i store.Import) error { return printImport(a, i) })
		},
	})
}

func newImportCancelCommand(a *app, f *importFlags) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:   "cancel ID",
		Short: "End an import where it is",
		Long: `End an import where it is. What was taken in stays; the rows after it are not
taken in. The same file imported again goes on behind what was accepted.`,
		Example: "  weir import cancel -c weir.yaml 019ab2c4-5d6e-7f80-9a1b-2c3d4e5f6071",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withImport(cmd.Context(), a, f.tenant, args[0], func(s assemble.Store, i store.Import) error {
				if imports.Ended(i) {
					return fmt.Errorf("the import is %s already", i.State)
				}
				detail, err := json.Marshal(map[string]string{"import": i.ID.String(), "source": i.Source})
				if err != nil {
					return err
				}
				if err := s.AddAudits(cmd.Context(), []store.Audit{{Actor: operate.Actor(), Action: "import cancel", Detail: detail}}); err != nil {
					return err
				}
				if i, err = s.CancelImport(cmd.Context(), f.tenant, i.ID); err != nil {
					return err
				}
				return printImport(a, i)
			})
		},
	})
}

func newImportErrorsCommand(a *app, f *importFlags) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "errors ID",
		Short:   "Print the rows of an import that were not accepted, with reasons",
		Example: "  weir import errors -c weir.yaml 019ab2c4-5d6e-7f80-9a1b-2c3d4e5f6071 --format csv > errors.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			as, err := imports.ParseFormat(format)
			if err != nil {
				return &usageError{err}
			}
			return withImport(cmd.Context(), a, f.tenant, args[0], func(s assemble.Store, i store.Import) error {
				return imports.WriteErrors(cmd.Context(), s, f.tenant, i.ID, as, a.out)
			})
		},
	}
	c.Flags().StringVar(&format, "format", "jsonl", "jsonl or csv")
	return a.needConfig(c)
}
