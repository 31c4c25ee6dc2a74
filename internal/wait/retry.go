package wait

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Permanent makes an error of Retry's op end the retries; nil stays nil.
func Permanent(err error) error {
	if IsPermanent(err) {
		return err
	}
	return backoff.Permanent(err)
}

// IsPermanent reports whether Permanent made err.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*backoff.PermanentError](err)
	return ok
}

// Retry repeats op until it succeeds, after pauses that double from 50 ms to 2 s. It returns
// nil then, the error that op made Permanent, the cause of work's end if work ended before a
// failure, or, stopped, the last failure when stop ends. With a log it reports the second
// failure in a row, since one may be a hiccup, and the success after that.
func Retry(work, stop context.Context, log *slog.Logger, what string, op func() error) (stopped bool, err error) {
	pause := backoff.ExponentialBackOff{InitialInterval: 50 * time.Millisecond, Multiplier: 2, MaxInterval: 2 * time.Second}
	for failures := 0; ; failures++ {
		err := op()
		if err == nil {
			if failures > 1 && log != nil {
				log.Info("resumed", "event", "retry.resumed", "doing", what)
			}
			return false, nil
		}
		if permanent, ok := errors.AsType[*backoff.PermanentError](err); ok {
			return false, permanent.Err
		}
		if work.Err() != nil {
			return false, context.Cause(work)
		}
		if failures == 1 && log != nil {
			log.Warn("halted: trying again until it works", "event", "retry.halted", "doing", what, "error", err)
		}
		if !Sleep(stop, pause.NextBackOff()) {
			return true, err
		}
	}
}
