package file

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/seed-86dfc502/weir/sinks"
)

// classify sorts a failure. Nothing of a failed Write stays in the
// file, so none is ambiguous, and none to retry is about the change.
func classify(op string, err error) error {
	e := &sinks.Error{Class: sinks.Retry, Op: op, Err: err}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errMoved):
	case errors.Is(err, errLocked):
		e.Hint = "one process writes a file; stop the other one, or give each service a file of its own"
	case errors.Is(err, errForeign):
		e.Class, e.Hint = sinks.Pause, "move the file away, or repair it"
	case errors.Is(err, errDamaged):
		e.Class, e.Hint = sinks.Pause, "check the disk; keep a copy of the file, take the line out of it, and replay the entities that it named"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "make room on the disk"
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Class, e.Hint = sinks.Pause, "the process must be allowed to write the file and its directory"
	case errors.Is(err, errIrregular), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EFBIG):
		e.Class, e.Hint = sinks.Pause, "check the path"
	default:
		e.Hint = "check the disk"
	}
	e.Unreachable = e.Class == sinks.Retry
	return e
}
