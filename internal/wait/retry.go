package wait

import (
	"context"
	"log/slog"
	"time"
)

// Retry repeats op until it works, after pauses that double from 50 ms to 2 s. It returns
// nil then, the cause of work's end when that is over after a failure, or, stopped, the
// last failure when stop ends. The log has a line when op fails for the second time,
// since one failure may be a hiccup, and one when it works again.
func Retry(work, stop context.Context, log *slog.Logger, what string, op func() error) (stopped bool, err error) {
	pause := 50 * time.Millisecond
	for failures := 0; ; failures++ {
		err := op()
		if err == nil {
			if failures > 1 {
				log.Info("going on", "doing", what)
			}
			return false, nil
		}
		if work.Err() != nil {
			return false, context.Cause(work)
		}
		if failures == 1 {
			log.Warn("halted: trying again until it works", "doing", what, "error", err)
		}
		if !Sleep(stop, pause) {
			return true, err
		}
		pause = min(2*pause, 2*time.Second)
	}
}
