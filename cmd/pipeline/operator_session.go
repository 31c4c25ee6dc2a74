package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/store"
	"golang.org/x/term"
)

// operating runs f in the environment of operators' commands: this process opens store and log
// for the time of the command. Embedded without a running process it also decides.
func (a *app) operating(ctx context.Context, f func(a *app, env *operate.Env) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	open, err := session.Open(ctx, cfg, commandLogger(cfg, a.err))
	if err != nil {
		return err
	}
	env, err := open.Env(ctx)
	if err != nil {
		return errors.Join(err, open.Close())
	}
	env.Actor = operate.Actor()
	if env.Alone = cfg.Kafka.Embedded() && !open.Shared; cfg.Kafka.Embedded() {
		env.Decide = func(ctx context.Context) (bool, error) {
			if err := open.Own(); errors.Is(err, session.ErrInUse) {
				return false, nil
			} else if err != nil {
				return false, err
			}
			return true, pipeline.DecideUntilIdle(ctx, open)
		}
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
	return usageOfRequest(err)
}

// usageOfRequest makes a request that never succeeds as it is a usage error.
func usageOfRequest(err error) error {
	if errors.As(err, new(*operate.InvalidRequestError)) || errors.Is(err, operate.ErrBadList) {
		return &usageError{err}
	}
	return err
}

// open opens a file that the command line names, - for standard input.
func (c *console) open(name string) (io.ReadCloser, error) {
	if name == "-" {
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

func isTerminal(stream any) bool {
	if o, ok := stream.(*output); ok {
		stream = o.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// canAsk reports whether a question reaches a terminal.
func (c *console) canAsk() bool { return isTerminal(c.in) && isTerminal(c.err) }

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
