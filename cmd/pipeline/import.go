package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// importFlags are those of weir import.
type importFlags struct {
	source, format, delimiter, name, tenant string
	types                                   []string
	emptyNull, wait                         bool
}

func newImportCommand(a *app) *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import PATH|-",
		Short: "Load a file of JSON lines or CSV into a source",
		Long: `Load a file of JSON lines or CSV into a source, as a job that a kill does not
lose. Running processes with role ingest work it off. With --wait this one helps
and ends when the job does; it has to be said where no process runs.

The same file for the same source is one job: the same command again goes on
with it, or tells what became of it. Rows that were taken in before, by their
event ids, are duplicates.`,
		Example: "  weir import -c weir.yaml --source lab lab.jsonl --wait\n" +
			"  weir import -c weir.yaml --source lab --type weight:number lab.csv\n" +
			"  zcat lab.jsonl.gz | weir import -c weir.yaml --source lab --format jsonl -",
		RunE: func(cmd *cobra.Command, args []string) error { return importFile(cmd.Context(), a, &f, args[0]) },
	}
	c.Flags().StringVar(&f.source, "source", "", "source that the rows go into (required)")
	c.Flags().StringVar(&f.format, "format", "", "jsonl or csv; default: by the file's name")
	c.Flags().StringVar(&f.delimiter, "delimiter", "", `between cells of CSV (default "," and a tab for *.tsv)`)
	c.Flags().StringArrayVar(&f.types, "type", nil, "type of a column of CSV, as NAME:TYPE; string (default), number, bool or json; repeatable")
	c.Flags().BoolVar(&f.emptyNull, "empty-null", false, "empty cells of strings are null, too")
	c.Flags().StringVar(&f.name, "name", "", "name of the file in lists; default: its own")
	c.Flags().BoolVar(&f.wait, "wait", false, "work the job off, and end when it does")
	_ = c.MarkFlagRequired("source")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl", "csv"}, cobra.ShellCompDirectiveNoFileComp))
	c.PersistentFlags().StringVar(&f.tenant, "tenant", auth.DefaultTenant, "tenant that the job belongs to")
	a.needConfig(c)
	c.AddCommand(newImportListCommand(a, &f), newImportShowCommand(a, &f), newImportCancelCommand(a, &f), newImportErrorsCommand(a, &f))
	return c
}

// file returns the file that the flags describe, checked.
func (f *importFlags) file(cfg *config.Config, path string) (imports.File, error) {
	wrong := func(err error) (imports.File, error) { return imports.File{}, &usageError{err} }
	source := cfg.Sources.Find(f.source)
	if source == nil {
		return imports.File{}, unknownWord(fmt.Errorf("there is no source %s in %s", f.source, cfg.File), f.source, cfg.Sources.Names())
	}
	if !source.TakesFiles() {
		return wrong(fmt.Errorf("source %s finds the entity in a column of its table, which a file has not: import into another source", f.source))
	}
	x := imports.File{
		Tenant: f.tenant, Source: f.source, Format: imports.FormatOf(path), Name: f.name, Actor: operate.Actor(),
		MaxRow: int(source.MaxEvent), MaxSize: int64(cfg.API.MaxImport),
		Options: imports.Options{Delimiter: f.delimiter, EmptyNull: f.emptyNull},
	}
	var err error
	if f.format != "" {
		if x.Format, err = imports.ParseFormat(f.format); err != nil {
			return wrong(err)
		}
	} else if x.Format == "" {
		return wrong(errors.New("the name of the file does not say its format: say --format"))
	}
	if x.Name == "" && path != "-" {
		x.Name = filepath.Base(path)
	}
	if x.Options.Delimiter == "" && strings.HasSuffix(strings.ToLower(path), ".tsv") && x.Format == imports.CSV {
		x.Options.Delimiter = "\t"
	}
	if x.Options.Types, err = imports.ParseTypes(strings.Join(f.types, ",")); err != nil {
		return wrong(err)
	}
	if err := x.Options.Check(x.Format); err != nil {
		return wrong(err)
	}
	return x, nil
}

// importedJSON is a job as --json prints it.
type importedJSON struct {
	imports.Job
	New *bool `json:"new,omitempty"` // of weir import: no earlier job is of this file
}

// importFile receives a file and, with --wait, works it off.
func importFile(ctx context.Context, a *app, f *importFlags, path string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	file, err := f.file(cfg, path)
	if err != nil {
		return err
	}
	in, err := a.open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	// Rows would be taken apart by another configuration than was asked with.
	if err := a.mustBeActive(ctx, cfg); err != nil {
		return err
	}
	return a.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		i, fresh, err := receiveFile(ctx, a, s, file, in)
		if err != nil {
			return err
		}
		if f.wait && !imports.Ended(i) {
			if !a.json {
				fmt.Fprintf(a.err, "import %s: %d bytes received; the same command goes on with it\n", i.ID, i.Bytes)
			}
			if i, err = workOff(ctx, a, cfg, s, i); err != nil {
				return fmt.Errorf("import %s is not at its end; running processes go on with it, and so does the same command: %w", i.ID, err)
			}
		}
		if a.json {
			err = a.printJSON(importedJSON{imports.JobOf(i), &fresh})
		} else {
			err = printImported(a, i, fresh)
		}
		if err == nil && (i.State == store.ImportFailed || i.State == store.ImportCancelled) {
			err = fmt.Errorf("the import is %s", i.State)
		}
		return err
	})
}

// receiveFile stores a file, and shows how far that is.
func receiveFile(ctx context.Context, a *app, s store.Imports, file imports.File, in io.Reader) (store.Import, bool, error) {
	show, stop := a.progressOf()
	defer stop()
	if show != nil {
		in = &progressReader{Reader: in, show: show, total: sizeOf(in)}
	}
	i, fresh, err := imports.Receive(ctx, s, file, in)
	var bad *imports.BadFile
	switch {
	case errors.As(err, &bad), errors.Is(err, imports.ErrTooLarge):
		return i, false, &usageError{fmt.Errorf("%s: %w", file.Name, err)}
	case errors.Is(err, store.ErrFenced):
		return i, false, errors.New("the import was cancelled while its file came in")
	case err != nil && ctx.Err() != nil:
		return i, false, errors.New("interrupted: nothing of the file is taken in")
	}
	return i, fresh, err
}

// sizeOf returns the size of a regular file, else 0.
func sizeOf(in io.Reader) int64 {
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	}
	return 0
}

// progressReader reports the bytes read as progress.
type progressReader struct {
	io.Reader
	show        func(done, total int64)
	done, total int64
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.done += int64(n)
	r.show(r.done, r.total)
	return n, err
}

// workOff waits for the end of an import. Meanwhile this process works off
// imports itself, in turn with others and while its configuration is the active one,
// unless another one has the data folder open, which then does it.
func workOff(ctx context.Context, a *app, cfg *config.Config, s store.Imports, i store.Import) (store.Import, error) {
	open, err := session.Open(ctx, cfg, commandLogger(cfg, a.err))
	if errors.Is(err, session.ErrInUse) {
		return waitForImport(ctx, a, s, i)
	} else if err != nil {
		return i, err
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- pipeline.WorkImports(working, open) }()
	i, err = waitForImport(ctx, a, s, i)
	stop()
	return i, errors.Join(err, <-worked, open.Close())
}

// waitPeriod is how often the end of an import is looked for.
const waitPeriod = 200 * time.Millisecond

// waitForImport returns an import as it is at its end, and shows how far it is.
func waitForImport(ctx context.Context, a *app, s store.Imports, i store.Import) (store.Import, error) {
	show, stop := a.progressOf()
	defer stop()
	tick := time.NewTicker(waitPeriod)
	defer tick.Stop()
	for {
		now, err := s.Import(ctx, i.Tenant, i.ID)
		if err == nil {
			i = now
		} else if class := store.ClassOf(err); class == store.Fatal || errors.Is(err, store.ErrNotFound) {
			return i, err
		}
		if imports.Ended(i) {
			return i, nil
		}
		if show != nil && i.Chunks > 0 {
			show(i.Bytes*i.Next/i.Chunks, i.Bytes)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return i, errors.New("interrupted")
		}
	}
}
