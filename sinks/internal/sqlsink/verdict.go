package sqlsink

import (
	"time"

	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
)

// Verdict is the meaning of a server's error code.
type Verdict struct {
	Class       sinks.Class
	Ambiguous   bool          // the statement may have taken effect
	Unreachable bool          // the server takes no work
	Wait        time.Duration // before a retry
	Hint        string
	Much        bool // a smaller statement may go through
}

// Error returns the failure of an operation with that meaning.
func (v Verdict) Error(op string, cause error) *sinks.Error {
	e := &sinks.Error{Class: v.Class, Ambiguous: v.Ambiguous, Unreachable: v.Unreachable, RetryAfter: v.Wait, Op: op, Hint: v.Hint, Err: cause}
	if v.Much {
		return batch.TooMuch(e)
	}
	return e
}
