package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errStage = errors.New("the stage failed")

// A stop takes no longer than shutdown.timeout, its parts end in the order of the flow, and
// an abandoned part is logged in one line and is no failure.
func TestEnding(t *testing.T) {
	const timeout = 20 * time.Second
	// Ways to stop: at once, after a time, when the limit ends, never.
	at := func(d time.Duration, err error) func(context.Context) error {
		return func(context.Context) error {
			<-time.After(d)
			return err
		}
	}
	quick := at(0, nil)
	hurried := func(limit context.Context) error {
		<-limit.Done()
		return errors.New("hurried")
	}
	for _, c := range []struct {
		name                  string
		failed                error
		ingest, work, closing func(context.Context) error
		took                  time.Duration
		cut                   string // in the log
		err                   string
	}{
		{name: "in order", ingest: quick, work: quick, closing: quick},
		{name: "in time", ingest: at(time.Second, nil), work: at(4*time.Second, nil), closing: quick, took: 5 * time.Second},
		{name: "nothing answers", ingest: hurried, work: hurried, closing: quick, took: 14 * time.Second, cut: "[ingest work]"},
		{name: "a stage hangs", ingest: at(time.Hour, nil), work: quick, closing: quick, took: 18 * time.Second, cut: "[ingest]"},
		{name: "closing hangs", ingest: quick, work: hurried, closing: at(time.Hour, nil), took: 18 * time.Second, cut: "[work closing]"},
		{name: "a failure stays one", failed: errStage, ingest: hurried, work: quick, closing: quick, took: 5 * time.Second, cut: "[ingest]", err: "the stage failed"},
		{name: "also when closing hangs", failed: errStage, ingest: quick, work: quick, closing: at(time.Hour, nil), took: 18 * time.Second, cut: "[closing]", err: "the stage failed"},
		{name: "failures of stopping", ingest: at(0, errors.New("a")), work: at(0, errors.New("b")), closing: at(0, errors.New("c")), err: "a\nb\nc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				e := newShutdown(timeout)
				var order []string
				stop := func(name string, limit context.Context, f func(context.Context) error) component {
					return component{name: name, limit: limit, stop: func() error {
						order = append(order, name)
						return f(limit)
					}}
				}
				start := time.Now()
				err := e.run(slog.New(slog.NewTextHandler(&log, nil)), func() ([]component, error) {
					return []component{stop("ingest", e.ingest.ctx, c.ingest), stop("work", e.work.ctx, c.work)}, c.failed
				}, func() error { return c.closing(e.closing()) })
				require.Equal(t, c.took, time.Since(start))
				<-time.After(2 * time.Hour) // what hangs ends, too
				synctest.Wait()
				require.Equal(t, []string{"ingest", "work"}, order)
				if c.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, c.err)
				}
				if c.cut == "" {
					require.Empty(t, log.String())
				} else {
					require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
					require.Contains(t, log.String(), "level=WARN")
					require.Contains(t, log.String(), c.cut)
				}
			})
		})
	}
}
