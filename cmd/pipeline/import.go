package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/spf13/cobra"
)

// importFlags are those of weir import.
type importFlags struct {
	source, format, delimiter, name, tenant string
	types                                   []string
	emptyNull                               bool
}

func newImportCommand(a *app) *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import PATH|-",
		Short: "Load a file of JSON lines or CSV into a source",
		Long: `Load a file of JSON lines or CSV into a source. The rows are ingested as the
file is read, by the process that has the data folder open, or by this one.

The job is identified by the content of the file, its source and its options: after
an interruption the command posts the file again, and rows that have their results
are skipped. So does the same command, given again. Rows whose event ids are known
are duplicates. Standard input is spooled to a temporary file.`,
		Example: "  weir import -c weir.yaml --source lab lab.jsonl\n" +
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

// importFile streams a file into a source, and resumes after interruptions.
func importFile(ctx context.Context, a *app, f *importFlags, path string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	file, err := f.file(cfg, path)
	if err != nil {
		return err
	}
	in, closeFile, err := a.seekable(path)
	if err != nil {
		return err
	}
	defer closeFile()
	// A running process would parse rows under another configuration.
	if err := a.mustBeActive(ctx, cfg); err != nil {
		return err
	}
	show, stop := a.progressOf()
	defer stop()
	sum := sha256.New()
	size, err := io.Copy(sum, in)
	if err != nil {
		return err
	}
	file.Content = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	post, closePost, err := a.importTarget(ctx, cfg, file)
	if err != nil {
		return err
	}
	defer closePost()
	job, err := insist(ctx, a, func() (imports.Job, error) {
		r := &progressReader{Reader: io.NewSectionReader(in, 0, size), show: show, total: size}
		defer r.end()
		return post(r)
	})
	stop()
	if err != nil {
		return err
	}
	return printImported(a, job)
}

// poster posts a file once, from its start.
type poster func(in io.Reader) (imports.Job, error)

// importTarget returns the way to import a file: in this process, or in the running one
// that has the data folder open.
func (a *app) importTarget(ctx context.Context, cfg *config.Config, f imports.File) (_ poster, closeTarget func(), err error) {
	log := commandLogger(cfg, a.err)
	open, running, err := pipeline.Attach(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	if running != nil {
		return func(in io.Reader) (imports.Job, error) { return postFile(ctx, cfg, f, in) }, func() {}, nil
	}
	closeTarget = func() {
		if err := open.Close(); err != nil {
			log.Warn("closing the state failed", "event", "import.close_failed", "error", err)
		}
	}
	m, err := pipeline.NewImporter(open)
	if err != nil {
		closeTarget()
		return nil, nil, err
	}
	return func(in io.Reader) (imports.Job, error) {
		i, err := m.Run(ctx, f, in)
		var bad *imports.BadFile
		switch {
		case errors.As(err, &bad), errors.Is(err, imports.ErrTooLarge):
			err = &finalError{&usageError{fmt.Errorf("%s: %w", f.Name, err)}}
		case imports.Final(err):
			err = &finalError{err}
		}
		return imports.JobOf(i), err
	}, closeTarget, nil
}

// postFile posts a file to the running process, which may be another one after a restart.
func postFile(ctx context.Context, cfg *config.Config, f imports.File, in io.Reader) (job imports.Job, err error) {
	running, err := control.At(cfg)
	if err != nil {
		return job, err
	}
	q := url.Values{"source": {f.Source}, "file": {f.Content}, "name": {f.Name}, "tenant": {f.Tenant}, "actor": {f.Actor}, "format": {string(f.Format)}}
	if f.Format == imports.CSV {
		q.Set("delimiter", f.Options.Delimiter)
		q.Set("types", f.Options.TypeList())
		if f.Options.EmptyNull {
			q.Set("empty", "null")
		}
	}
	resp, err := running.Import(ctx, q, "application/octet-stream", in)
	if err != nil {
		return job, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return job, err
	}
	if resp.StatusCode == http.StatusOK {
		return job, json.Unmarshal(body, &job)
	}
	var p struct{ Detail string }
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		p.Detail = fmt.Sprintf("%s answered %s", running, resp.Status)
	}
	err = errors.New(p.Detail)
	switch resp.StatusCode {
	case http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		err = &finalError{&usageError{fmt.Errorf("%s: %w", f.Name, err)}}
	case http.StatusBadRequest, http.StatusServiceUnavailable: // the connection broke, or the process is ending
	default:
		err = &finalError{err}
	}
	return job, err
}

// finalError is an error after which posting the file again is of no use.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// abandonAfter is how long posting may fail in a row.
const abandonAfter = 5 * time.Minute

// insist posts until the import ends.
func insist(ctx context.Context, a *app, post func() (imports.Job, error)) (imports.Job, error) {
	pauses := backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second}
	for failing := time.Now(); ; {
		began := time.Now()
		job, err := post()
		var final *finalError
		if err == nil || errors.As(err, &final) {
			return job, err
		}
		if time.Since(began) > abandonAfter { // it got further
			failing = time.Now()
			pauses.Reset()
		}
		if time.Since(failing) > abandonAfter || !wait.Sleep(ctx, pauses.NextBackOff()) {
			return job, fmt.Errorf("the import is incomplete; the same command continues it: %w", cmp.Or(context.Cause(ctx), err))
		}
		fmt.Fprintf(a.err, "import interrupted, posting the file again: %v\n", err)
	}
}

// progressReader reports the bytes read as progress, until end: an HTTP client may read on
// after the answer.
type progressReader struct {
	io.Reader
	mu          sync.Mutex
	ended       bool
	show        func(done, total int64) // may be nil
	done, total int64
}

func (r *progressReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return 0, io.ErrClosedPipe
	}
	n, err := r.Reader.Read(b)
	if r.done += int64(n); r.show != nil {
		r.show(r.done, r.total)
	}
	return n, err
}

func (r *progressReader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}
