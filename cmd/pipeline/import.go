package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/imports"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/spf13/cobra"
)

// importFlags are the flags of weir import.
type importFlags struct {
	source, format, delimiter, escape, null, name, tenant string
	types                                                 []string
}

func newImportCommand(a *app) *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import PATH|-",
		Short: "Load a file of JSON lines or CSV into a source",
		Long: `Load a file of JSON lines or CSV into a source. The rows are ingested as the
file is read, by this command, also beside a running process.

The import is identified by the content of the file, its source and its options: the
same command again continues it after an interruption, and skips rows that have
their results. Rows whose event ids are known are duplicates; rows that are refused
become dead letters. Standard input is spooled to a temporary file.`,
		Example: "  weir import -c weir.yaml --source lab lab.jsonl\n" +
			"  weir import -c weir.yaml --source lab --type weight:number lab.csv\n" +
			"  zcat lab.jsonl.gz | weir import -c weir.yaml --source lab --format jsonl -",
		RunE: func(cmd *cobra.Command, args []string) error {
			var null *string
			if cmd.Flags().Changed("null") {
				null = &f.null
			}
			return importFile(cmd.Context(), a, &f, null, args[0])
		},
	}
	c.Flags().StringVar(&f.source, "source", "", "source that the rows go into (required)")
	c.Flags().StringVar(&f.format, "format", "", "jsonl or csv; default: by the file's name")
	c.Flags().StringVar(&f.delimiter, "delimiter", "", `between cells of CSV (default "," and a tab for *.tsv)`)
	c.Flags().StringArrayVar(&f.types, "type", nil, "type of a column of CSV, as NAME:TYPE; string (default), number, bool or json; repeatable")
	c.Flags().StringVar(&f.null, "null", "", `cell without quotes that is null: '' for files of PostgreSQL's COPY, '\N' for MySQL's`)
	c.Flags().StringVar(&f.escape, "escape", "", `character that escapes the next one in CSV: '\' for MySQL's OUTFILE`)
	c.Flags().StringVar(&f.name, "name", "", "name of the file in lists; default: its own")
	_ = c.MarkFlagRequired("source")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl", "csv"}, cobra.ShellCompDirectiveNoFileComp))
	c.PersistentFlags().StringVar(&f.tenant, "tenant", auth.DefaultTenant, "tenant that the import belongs to")
	a.needConfig(c)
	c.AddCommand(newImportShowCommand(a, &f))
	return c
}

// file returns the file that the flags describe, checked.
func (f *importFlags) file(cfg *config.Config, null *string, path string) (imports.File, error) {
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
		MaxRow:  int(source.MaxEvent),
		Options: imports.Options{Delimiter: f.delimiter, Null: null, Escape: f.escape},
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
	if x.Options.Types, err = imports.ParseTypes(f.types); err != nil {
		return wrong(err)
	}
	if err := x.Options.Check(x.Format); err != nil {
		return wrong(err)
	}
	return x, nil
}

// importFile loads a file into a source, and resumes after interruptions.
func importFile(ctx context.Context, a *app, f *importFlags, null *string, path string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	file, err := f.file(cfg, null, path)
	if err != nil {
		return err
	}
	in, closeFile, err := a.seekable(path)
	if err != nil {
		return err
	}
	defer closeFile()
	sum := sha256.New()
	size, err := io.Copy(sum, in)
	if err != nil {
		return err
	}
	file.SHA256 = [sha256.Size]byte(sum.Sum(nil))
	open, err := session.Open(ctx, cfg, commandLogger(cfg, a.err))
	if err != nil {
		return err
	}
	show, stop := a.progressOf()
	defer stop()
	desk, err := imports.NewDesk(open, cfg.Sources.Find(file.Source))
	var i imports.Import
	if err == nil {
		rows := &progressReader{Reader: io.NewSectionReader(in, 0, size), show: show, total: size}
		i, err = imports.Run(ctx, file, rows, func(ctx context.Context, b imports.Batch) (imports.Import, error) { return insist(ctx, a, desk, b) })
	}
	stop()
	var bad *imports.BadFile
	switch err = errors.Join(err, open.Close()); {
	case errors.As(err, &bad):
		return &usageError{fmt.Errorf("%s: %w", file.Name, err)}
	case err != nil && i.ID != "" && !imports.Final(err):
		return fmt.Errorf("the import is incomplete; the same command continues it: %w", err)
	case err != nil:
		return err
	}
	return printImported(a, i)
}

// importPatience is how long ingesting a batch may fail in a row.
const importPatience = 5 * time.Minute

// insist ingests a batch, again until that succeeds or cannot succeed.
func insist(ctx context.Context, a *app, desk *imports.Desk, b imports.Batch) (i imports.Import, err error) {
	pauses := backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second}
	for began := time.Now(); ; {
		if i, err = desk.Ingest(ctx, b); err == nil || imports.Final(err) {
			return i, err
		}
		if time.Since(began) > importPatience || !wait.Sleep(ctx, pauses.NextBackOff()) {
			return i, cmp.Or(context.Cause(ctx), err)
		}
		fmt.Fprintf(a.err, "import interrupted, trying again: %v\n", err)
	}
}

// progressReader reports the bytes read as progress.
type progressReader struct {
	io.Reader
	show        func(done, total int64) // may be nil
	done, total int64
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.done += int64(n); r.show != nil {
		r.show(r.done, r.total)
	}
	return n, err
}
