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

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store"
	"golang.org/x/term"
)

// servable are the commands that a running process may be asked to run for
// another one. Those that need the store alone open it themselves.
var servable = []string{"weir explain", "weir replay", "weir reset", "weir reconcile", "weir dlq replay", "weir resume", "weir page", "weir customer remove",
	"weir guard show", "weir guard release", "weir guard discard", "weir guard extend"}

// forwarded is how a process runs a command for another one.
type forwarded struct {
	config   *config.Config
	tools    func(context.Context) (*operate.Env, error)
	probe    func(service string) bool
	link     func(actor string) string
	actor    string
	terminal bool
}

// executor runs commands of other processes in this one, with its open store and log. It logs the
// command and its user, but no argument: arguments may hold text that belongs into the audit
// only. tools makes the environment that they work with, probe makes a service try now, and link
// makes a link to the page, empty without one.
func (a *app) executor(cfg *config.Config, tools func(context.Context) (*operate.Env, error), probe func(service string) bool, link func(actor string) string, log *slog.Logger) control.Executor {
	return func(ctx context.Context, c control.Command, out, err io.Writer) int {
		s := &app{
			console: console{
				out: out, err: err, in: bytes.NewReader(c.Stdin),
				forwarded: &forwarded{config: cfg, tools: tools, probe: probe, link: link, actor: c.Actor, terminal: c.Terminal},
			},
			env: a.env,
		}
		found, _, e := newRootCommand(s).Find(c.Args)
		if e != nil || !slices.Contains(servable, found.CommandPath()) {
			s.printError(errors.New("a running process does not take this command"))
			return exitUsage
		}
		if c.Actor == "" {
			s.printError(errors.New("a command must say who asks: its actor is empty"))
			return exitUsage
		}
		log.Info("running a command for an operator", "event", "command.forwarded", "command", found.CommandPath(), "actor", c.Actor)
		return s.execute(ctx, c.Args)
	}
}

// operating runs f in the environment of operators' commands. There are three ways:
//
//   - With servers, and embedded without a running process, this process opens store and
//     log itself for the time of the command.
//   - Embedded, while a process runs, that one has them open: it is asked to run
//     the command, and its output is printed here.
//   - This process is the one that was asked.
//
// input names a file, or - for standard input, that the command reads, or empty for none. f reads
// it by a.open, and uses the a that it is given.
func (a *app) operating(ctx context.Context, input string, f func(a *app, env *operate.Env) error) error {
	if a.forwarded != nil {
		env, err := a.forwarded.tools(ctx)
		if err != nil {
			return err
		}
		env.Actor = a.forwarded.actor
		return a.withProgress(env, f)
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	open, running, err := pipeline.Attach(ctx, cfg, commandLogger(cfg, a.err))
	if err != nil {
		return err
	}
	if running != nil {
		// It would use its own configuration, not the one of the command.
		if err := a.mustBeActive(ctx, cfg); err != nil {
			return err
		}
		return a.forward(ctx, running, input)
	}
	env, err := open.Env(ctx)
	if err != nil {
		return errors.Join(err, open.Close())
	}
	env.Actor = operate.Actor()
	if cfg.Kafka.Embedded() {
		env.Decide = func(ctx context.Context) error { return pipeline.DecideUntilIdle(ctx, open) }
	}
	return errors.Join(a.withProgress(env, f), open.Close())
}

// mustBeActive fails with session.ErrNotActive when another configuration is.
func (a *app) mustBeActive(ctx context.Context, cfg *config.Config) error {
	return a.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		active, err := s.Active(ctx)
		if errors.Is(err, store.ErrNotFound) {
			return session.ErrNothingRan
		} else if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if !cfg.DecidesLike(active.Fingerprint) {
			return fmt.Errorf("%s: %w", cfg.File, session.ErrNotActive)
		}
		return nil
	})
}

func (a *app) withProgress(env *operate.Env, f func(a *app, env *operate.Env) error) error {
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

// forward hands the command line to a running process.
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
		return fmt.Errorf("interrupted, and so is the command in %s; the same command resumes it: %w", running, err)
	}
	if err != nil {
		return err
	}
	if status != exitOK {
		return &exitError{status}
	}
	return nil
}

// open opens a file that the command line names, - for standard input. When the process runs
// another process's command, it is always the input sent with it: the files of this process are
// not the caller's.
func (c *console) open(name string) (io.ReadCloser, error) {
	if c.forwarded != nil || name == "-" {
		return io.NopCloser(c.in), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, &usageError{err}
	}
	return f, nil
}

// seekable returns what open returns, spooled to a temporary file if it cannot be
// read twice.
func (c *console) seekable(name string) (*os.File, func(), error) {
	r, err := c.open(name)
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

// terminal reports whether standard error is a terminal.
func (c *console) terminal() bool {
	if c.forwarded != nil {
		return c.forwarded.terminal
	}
	return isTerminal(c.err)
}

func isTerminal(stream any) bool {
	if o, ok := stream.(*output); ok {
		stream = o.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// canAsk reports whether a question reaches a terminal.
func (c *console) canAsk() bool { return c.forwarded == nil && isTerminal(c.in) && isTerminal(c.err) }

// confirm asks a person; on anything but a terminal it fails and names the flag
// that answers beforehand. The end of ctx is a no.
func (c *console) confirm(ctx context.Context, question string) error {
	if !c.canAsk() {
		return &usageError{hinted(errors.New("this affects many entities, and there is no terminal to ask"), "confirm with --yes")}
	}
	fmt.Fprintf(c.err, "%s [y/N] ", question)
	answered := make(chan string, 1)
	// A read of a terminal cannot be ended. This one ends with the process.
	go func() {
		var answer string
		_, _ = fmt.Fscanln(c.in, &answer)
		answered <- strings.ToLower(answer)
	}()
	select {
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(c.err)
	}
	return errors.New("nothing was done")
}
