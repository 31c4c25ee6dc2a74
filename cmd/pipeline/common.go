package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// load reads the configuration; its faults are a usage error and, with
// --json, a JSON list on standard output.
func (a *app) load(options ...config.Option) (*config.Config, error) {
	c := a.loaded
	if c == nil {
		var err error
		if c, err = a.read(options...); err != nil {
			return nil, a.configError(err, a.config)
		}
	}
	a.renamed = c.Renamed()
	return c, nil
}

// firstNames replaces names of services on a command line by their first names, which the
// state is kept under. Without a usable configuration it does nothing: the command reports that.
func (a *app) firstNames(cmd *cobra.Command, args []string) {
	flag := cmd.Flags().Lookup("service")
	given := flag != nil && flag.Changed
	if !strings.Contains(cmd.Use, "SERVICE") {
		args = nil
	}
	if !given && len(args) == 0 {
		return
	}
	c, err := a.read()
	if err != nil {
		return
	}
	a.loaded = c
	for i := range args {
		args[i] = c.FirstName(args[i])
	}
	if !given {
		return
	}
	list, several := flag.Value.(pflag.SliceValue)
	if !several {
		_ = flag.Value.Set(c.FirstName(flag.Value.String()))
		return
	}
	names := list.GetSlice()
	for i := range names {
		names[i] = c.FirstName(names[i])
	}
	_ = list.Replace(names)
}

// configError is the usage error of a file that cannot be used. With --json its faults go to
// standard output.
func (a *app) configError(err error, file string) error {
	var faults *config.Faults
	if errors.As(err, &faults) && a.json {
		if e := a.printJSON(faults); e != nil {
			return e
		}
		return &usageError{fmt.Errorf("%s is not usable", file)}
	}
	return &usageError{err}
}

// read reads the configuration and checks it. Its error is a *config.Faults.
func (a *app) read(options ...config.Option) (*config.Config, error) {
	c, err := assemble.Load(a.config, a.env, options...)
	if err != nil {
		return nil, err
	}
	if err := assemble.Check(c); err != nil {
		return nil, err
	}
	return c, nil
}

// logger makes the logger that the configuration asks for.
func logger(c *config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log.Level)) // one of four words, checked at load
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func (c *console) printJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows in columns below a header, whose words tabs separate.
func table[T any](c *console, header string, rows []T, cells func(*T) []any) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for i := range rows {
		var line []string
		for _, v := range cells(&rows[i]) {
			line = append(line, c.cell(v))
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}

// list prints rows: as JSON, as a sentence without any, or as a table. A full page is followed by
// the flag for the next one, which more returns for the last row. A limit of 0 has no pages.
func list[T any](c *console, rows []T, limit int, empty, header string, more func(*T) string, cells func(*T) []any) error {
	switch {
	case c.json && rows == nil:
		return c.printJSON([]T{})
	case c.json:
		return c.printJSON(rows)
	case len(rows) == 0:
		_, err := fmt.Fprintln(c.out, empty)
		return err
	}
	err := table(c, header, rows, cells)
	if err == nil && len(rows) == limit {
		fmt.Fprintln(c.out, "more:", more(&rows[limit-1]))
	}
	return err
}

// facts prints names, each with its value, a line each, without those that have no value.
func (c *console) facts(pairs ...any) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for i := 0; i < len(pairs); i += 2 {
		if text := c.cell(pairs[i+1]); text != "-" { //nolint:gosec // pairs are even
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], text)
		}
	}
	return w.Flush()
}

// cell formats a value as text, an empty one as -. A renamed service has its current name.
func (c *console) cell(v any) string {
	switch v := v.(type) {
	case string:
		return cmp.Or(c.renamed[v], terminal.Visible(v), "-")
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	}
	return cmp.Or(terminal.Visible(fmt.Sprint(v)), "-")
}

// checkPage refuses bounds of a page that select nothing.
func checkPage(limit int, after int64) error {
	if limit < 1 || after < 0 {
		return &usageError{errors.New("--limit must be at least 1 and --after not negative")}
	}
	return nil
}

// withStore opens the store of the configuration for one command, for reading alone where this
// user may do no more. The schema must have the version of this build.
func (a *app) withStore(ctx context.Context, f func(s assemble.Store) error) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	return a.withStoreOf(ctx, c, f)
}

// withStoreOf is withStore for a command that has loaded the configuration.
func (a *app) withStoreOf(ctx context.Context, c *config.Config, f func(s assemble.Store) error) error {
	// Opening would make the file, which is no work for a command that looks.
	if file := c.Store.File; file != "" {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: there is no %s", session.ErrNothingRan, file)
		} else if err != nil {
			return fmt.Errorf("store: %w", err) // a folder that this user may not look into
		}
	}
	s, err := assemble.OpenReadOnly(ctx, c, logger(c, a.err))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.CheckSchema(ctx); err != nil {
		return errors.Join(hinted(fmt.Errorf("store: %w", err), "%s", remedy.Of("store", err)), s.Close())
	}
	return errors.Join(f(s), s.Close())
}

// commandLogger is the logger of a short command. It omits a pipeline's informational lines,
// which would hide the result.
func commandLogger(c *config.Config, w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if c.Log.Level == "debug" {
		level = slog.LevelDebug
	} else if c.Log.Level == "error" {
		level = slog.LevelError
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// maxReason bounds a reason, in bytes: every record and audit row of an operation has it.
const maxReason = 1 << 10

// checkReason refuses a reason that is too long, or that no store holds.
func checkReason(text string) error {
	switch {
	case len(text) > maxReason:
		return &usageError{fmt.Errorf("--reason has %d bytes; the longest is %d", len(text), maxReason)}
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return &usageError{errors.New("--reason is not UTF-8 text")}
	}
	return nil
}
