package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
	"golang.org/x/term"
)

// servable are the commands that a running process may be asked to run for
// another one. Those that need the store alone open it themselves.
var servable = []string{"weir explain", "weir replay", "weir reset", "weir reconcile", "weir dlq replay"}

// served is how a process runs a command for another one.
type served struct {
	config   *config.Config
	tools    func(context.Context) (*operate.Env, error)
	actor    string
	terminal bool
}

// executor runs commands of other processes in this one, with its open store
// and log. It logs which command and whose, and no argument: they may hold what
// is for the audit alone.
func (a *app) executor(cfg *config.Config, log *slog.Logger) control.Executor {
	return func(ctx context.Context, c control.Command, tools func(context.Context) (*operate.Env, error), out, err io.Writer) int {
		s := &app{
			out: out, err: err, in: bytes.NewReader(c.Stdin), env: a.env,
			served: &served{config: cfg, tools: tools, actor: c.Actor, terminal: c.Terminal},
		}
		found, _, e := s.root().Find(c.Args)
		if e != nil || !slices.Contains(servable, found.CommandPath()) {
			fmt.Fprintf(err, "a running process does not take this command\n")
			return exitUsage
		}
		if c.Actor == "" {
			fmt.Fprintf(err, "a command must say who asks: its actor is empty\n")
			return exitUsage
		}
		log.Info("running a command for an operator", "command", found.CommandPath(), "actor", c.Actor)
		return s.execute(ctx, c.Args)
	}
}

// operating runs f in the environment of operators' commands. There are three ways:
//
//   - With servers, and embedded while nobody runs, this process opens store and
//     log itself for the time of the command.
//   - Embedded, while a process runs, that one has them open: it is asked to run
//     the command, and what it prints is printed here.
//   - This process is the one that was asked.
//
// input names a file, or -
// for standard input, that the command reads; empty for none. f reads it by
// a.open, and uses the a that it is given.
func (a *app) operating(ctx context.Context, input string, f func(a *app, env *operate.Env) error) error {
	if a.served != nil {
		env, err := a.served.tools(ctx)
		if err != nil {
			return err
		}
		env.Actor = a.served.actor
		return a.with(env, f)
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	opt := pipeline.Options{Config: cfg, Logger: quiet(cfg, a.err)}
	tools, running, err := pipeline.Reach(ctx, opt)
	if err != nil {
		return err
	}
	if running != nil {
		// It would work with its own configuration, whatever was asked with which.
		if err := a.mustBeActive(ctx, cfg); err != nil {
			return err
		}
		return a.forward(ctx, running, input)
	}
	env, err := tools.Tools(ctx)
	if err != nil {
		return errors.Join(err, tools.Close())
	}
	env.Actor = operate.Actor()
	if cfg.Kafka.Embedded() {
		env.Decide = tools.DecideUntilIdle
	}
	return errors.Join(a.with(env, f), tools.Close())
}

// mustBeActive fails with pipeline.ErrNotActive when another configuration is.
func (a *app) mustBeActive(ctx context.Context, cfg *config.Config) error {
	return a.withStoreOf(ctx, cfg, func(s assemble.Opened) error {
		active, err := s.Active(ctx)
		if errors.Is(err, store.ErrNotFound) {
			return pipeline.ErrNothingRan
		} else if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if !cfg.DecidesLike(active.Fingerprint) {
			return fmt.Errorf("%s: %w", cfg.File, pipeline.ErrNotActive)
		}
		return nil
	})
}

func (a *app) with(env *operate.Env, f func(a *app, env *operate.Env) error) error {
	progress, stop := a.progressOf()
	env.Progress = progress
	shown := *a
	shown.out = afterProgress{a.out, stop}
	err := f(&shown, env)
	stop()
	var no *operate.InvalidRequestError
	if errors.As(err, &no) || errors.Is(err, operate.ErrBadList) {
		return &usageError{err}
	}
	return err
}

// afterProgress takes the line of progress away before a result is written.
type afterProgress struct {
	io.Writer
	stop func()
}

func (w afterProgress) Write(b []byte) (int, error) {
	w.stop()
	return w.Writer.Write(b)
}

// forward hands the command line to the process that has the data folder open.
func (a *app) forward(ctx context.Context, running *control.Running, input string) error {
	c := control.Command{Args: a.args, Actor: operate.Actor(), Terminal: a.terminal()}
	if input != "" {
		r, err := a.open(input)
		if err != nil {
			return err
		}
		defer r.Close()
		if c.Stdin, err = io.ReadAll(r); err != nil {
			return err
		}
	}
	status, err := running.Forward(ctx, c, a.out, a.err)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted, and so is the command in process %d; the same command goes on with what it began: %w", running.PID, err)
	}
	if err != nil {
		return err
	}
	if status != exitOK {
		return &exitError{status}
	}
	return nil
}

// open opens a file that the command line names, - for standard input. In a
// process that was asked it is always what came with the command: its files are
// not the caller's.
func (a *app) open(name string) (io.ReadCloser, error) {
	if a.served != nil || name == "-" {
		return io.NopCloser(a.in), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, &usageError{err}
	}
	return f, nil
}

// seekable returns what open gives, spooled to a temporary file if it cannot be
// read twice.
func (a *app) seekable(name string) (io.ReadSeeker, func(), error) {
	r, err := a.open(name)
	if err != nil {
		return nil, nil, err
	}
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return f, func() { _ = f.Close() }, nil
		}
	}
	defer r.Close()
	f, err := os.CreateTemp("", "weir-input-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = f.Close(); _ = os.Remove(f.Name()) }
	if _, err := io.Copy(f, r); err != nil {
		remove()
		return nil, nil, err
	}
	return f, remove, nil
}

// terminal reports whether somebody watches standard error.
func (a *app) terminal() bool {
	if a.served != nil {
		return a.served.terminal
	}
	return isTerminal(a.err)
}

func isTerminal(stream any) bool {
	if o, ok := stream.(*output); ok {
		stream = o.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progressOf shows how far an action is while somebody watches, at most some
// times a second: a bar when the end is known, else a number. stop takes it away,
// and may be called twice.
func (a *app) progressOf() (show func(done, total int64), stop func()) {
	if !a.terminal() {
		return nil, func() {}
	}
	const width = 30
	var last time.Time
	start := time.Now()
	return func(done, total int64) {
			if time.Since(last) < 200*time.Millisecond && done != total {
				return
			}
			last = time.Now()
			perSecond := float64(done) / max(0.001, time.Since(start).Seconds())
			rate := humanize.Comma(int64(perSecond))
			if total <= 0 {
				fmt.Fprintf(a.err, "\r\033[K%s (%s/s)", humanize.Comma(done), rate)
				return
			}
			total = max(done, total) // it may have been an estimate
			full := int(width * done / total)
			fmt.Fprintf(a.err, "\r\033[K[%s%s] %s of %s (%s/s%s)", strings.Repeat("#", full), strings.Repeat(".", width-full),
				humanize.Comma(done), humanize.Comma(total), rate, remaining(done, total, perSecond))
		}, func() {
			if !last.IsZero() {
				fmt.Fprint(a.err, "\r\033[K")
				last = time.Time{}
			}
		}
}

// remaining says how long the rest takes at a rate; empty while there is none.
func remaining(done, total int64, perSecond float64) string {
	if done <= 0 || done >= total || perSecond <= 0 {
		return ""
	}
	left := time.Duration(float64(total-done) / perSecond * float64(time.Second))
	return ", " + max(time.Second, left.Round(time.Second)).String() + " left"
}

// confirm asks a person; on anything but a terminal it fails and names the flag
// that answers beforehand. The end of ctx is a no.
func (a *app) confirm(ctx context.Context, question string) error {
	if a.served != nil || !isTerminal(a.in) || !isTerminal(a.err) {
		return &usageError{hinted(errors.New("this changes many at once, and nobody can be asked here"), "--yes answers beforehand")}
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answered := make(chan string, 1)
	// A read of a terminal cannot be ended; this one ends with the process.
	go func() {
		var answer string
		_, _ = fmt.Fscanln(a.in, &answer)
		answered <- strings.ToLower(answer)
	}()
	select {
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.err)
	}
	return errors.New("nothing was done")
}
