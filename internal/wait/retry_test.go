package wait

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

func TestRetry(t *testing.T) {
	away, over := errors.New("away"), errors.New("over")
	for name, c := range map[string]struct {
		fails   int           // times
		final   bool          // the last failure is permanent
		ends    time.Duration // of work; 0: never
		stops   time.Duration // 0: never
		took    time.Duration
		stopped bool
		err     error
		says    []string
	}{
		"works at once":      {},
		"a hiccup":           {fails: 1, took: 50 * time.Millisecond},
		"halts and goes on":  {fails: 3, took: 350 * time.Millisecond, says: []string{"retry.halted", "retry.resumed"}},
		"pauses are bounded": {fails: 8, took: 7150 * time.Millisecond, says: []string{"retry.halted", "retry.resumed"}},
		"work ends":          {fails: 99, ends: 100 * time.Millisecond, took: 150 * time.Millisecond, err: over, says: []string{"retry.halted"}},
		"a permanent error":  {fails: 2, final: true, took: 50 * time.Millisecond, err: away},
		"is stopped":         {fails: 99, stops: time.Second, took: time.Second, stopped: true, err: away, says: []string{"retry.halted"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				work, end := context.WithCancelCause(t.Context())
				stop, cancel := context.WithCancel(t.Context())
				defer end(nil)
				defer cancel()
				if c.ends > 0 {
					time.AfterFunc(c.ends, func() { end(over) })
				}
				if c.stops > 0 {
					time.AfterFunc(c.stops, cancel)
				}
				var text bytes.Buffer
				start, calls := time.Now(), 0
				stopped, err := Retry(work, stop, slog.New(slog.NewTextHandler(&text, nil)), "it", func() error {
					if calls++; calls == c.fails && c.final {
						return Permanent(away)
					}
					if calls <= c.fails {
						return away
					}
					return nil
				})
				require.Equal(t, c.stopped, stopped)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.took, time.Since(start))
				require.Equal(t, len(c.says), strings.Count(text.String(), "\n"), text.String())
				for _, says := range c.says {
					require.Contains(t, text.String(), says)
				}
			})
		})
	}
}
