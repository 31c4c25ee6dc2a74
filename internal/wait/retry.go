package wait

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry repeats op until it succeeds, after pauses that double from 50 ms to 2 s. It returns
// nil then, the cause of work's end when that is over after a failure, or, stopped, the
// last failure when stop ends. It logs the second failure in a row, since one may be a
// hiccup, and the success after that.
func Retry(work, stop context.Context, log *slog.Logger, what string, op func() error) (stopped bool, err error) {
	pause := backoff.ExponentialBackOff{InitialInterval: 50 * time.Millisecond, Multiplier: 2, MaxInterval: 2 * time.Second}
	for failures := 0; ; failures++ {
		err := op()
		if err == nil {
			if failures > 1 {
				log.Info("resumed", "event", "retry.resumed", "doing", what)
			}
			return false, nil
		}
		if work.Err() != nil {
			return false, context.Cause(work)
		}
		if failures == 1 {
			log.Warn("halted: trying again until it works", "event", "retry.halted", "doing", what, "error", err)
		}
		if !Sleep(stop, pause.NextBackOff()) {
			return true, err
		}
	}
}
