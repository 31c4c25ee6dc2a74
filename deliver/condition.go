package deliver

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// State says how a service is doing.
type State string

// The states of a service.
const (
	StateRunning  State = "running"
	StatePaced    State = "paced"    // changes wait on purpose, for the pace of the service
	StateRetrying State = "retrying" // the last attempt failed and is repeated
	StatePaused   State = "paused"   // see Condition.Pause
)

// Condition is the state of a service's delivery, as this process has seen it.
type Condition struct {
	State State
	// Refused is how many changes became dead letters since the last delivery.
	Refused int64
	// Since is when it left StateRunning, or the first of those was refused; zero
	// when nothing is wrong.
	Since time.Time
	// Error is the sink's last error, at most 300 bytes, and Cause the innermost part of
	// it: "connection refused". Both are empty when nothing is wrong.
	Error, Cause string
	// Detail is Error with up to 4 KiB of it.
	Detail string
	// Failure is the sink's last error; nil when nothing is wrong.
	Failure *sinks.Error
	// NextTry is when the failed attempt is repeated; zero when none has failed, or unknown.
	NextTry time.Time
	// Paced counts the changes in hand that wait for the pace of the service.
	Paced int
	// Parked counts the changes that wait for another attempt.
	Parked Parked
	// Pause says why; nil unless State is StatePaused. Read-only.
	Pause *Pause
}

// Parked describes the changes that wait for another attempt, apart from the others.
type Parked struct {
	Entities int // with a change that failed and is tried again
	Rows     int // these changes, with those queued behind them
	Bytes    int64
	Oldest   time.Time // since when the longest waits
	Next     time.Time // the earliest next attempt
	Entity   string    // of the longest
	Attempts int       // of the longest, that count
	Error    string    // of the longest: the target's own words, shortened
	Full     bool      // no row is left: a change that fails holds up the position
}

// PauseCause says who paused a service.
type PauseCause string

// The causes of a pause.
const (
	PausedByOperator PauseCause = "operator"
	PausedByGuard    PauseCause = "guard"
	// PausedByRefusal: the target refuses the service as a whole. It is probed until it accepts.
	PausedByRefusal PauseCause = "refused"
)

// Pause is why a service gets nothing. The store has those of operators and the guard, for all
// processes, and an operator ends them. A refusal is this process's own and ends with the first success.
type Pause struct {
	Cause PauseCause
	store.Pause
}

// PauseOf returns a pause of the store.
func PauseOf(p store.Pause) *Pause {
	if p.Hold != nil {
		return &Pause{PausedByGuard, p}
	}
	return &Pause{PausedByOperator, p}
}

// stored reports whether an operator ends the pause.
func (p *Pause) stored() bool { return p != nil && p.Cause != PausedByRefusal }

// pauseOf returns the pause of a service; nil: none.
func pauseOf(all map[string]store.Pause, service string) *Pause {
	if p, is := all[service]; is {
		return PauseOf(p)
	}
	return nil
}

// condition is how a worker's delivery is doing. Safe for concurrent use.
type condition struct {
	mu                sync.Mutex
	failing, refusing failure
	refused           int64
	reports           sinks.Reports // of failing
	parked            Parked
	paced             int
	pause             *Pause    // nil: none; immutable
	resumes           int       // how often the store's pause ended
	resumedAt         time.Time // when last: changes before it may have been replaced
	// changed ends and is replaced when the store's pause begins or ends, and when an
	// attempt is requested.
	changed context.Context
	change  context.CancelFunc
}

// failure is a lasting failure: since when, and the last error. Zero means no failure.
type failure struct {
	since       time.Time
	text, cause string
	detail      string
	err         *sinks.Error
	next        time.Time // of the next attempt
}

func (t *failure) record(e *sinks.Error) {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	text := e.Words()
	t.text, t.cause, t.detail, t.err = shortened(text, maxCondition), Cause(e), shortened(text, maxDetail), e
}

// failed returns whether the state changed, and how many failures to report now, if any.
func (c *condition) failed(e *sinks.Error) (changed bool, failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state()
	c.failing.record(e)
	c.sinkSays(e.Class == sinks.Pause)
	now := c.state()
	if changed = now != before; changed && now == StatePaused { // another failure than before
		c.reports = sinks.Reports{}
	}
	if n, due := c.reports.Due(e, time.Now()); due {
		failures = max(n, 1)
	}
	return changed, failures
}

// recovered returns whether the state changed, and whether the failure had been reported.
func (c *condition) recovered() (changed, reported bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state()
	c.failing = failure{}
	c.sinkSays(false)
	reported, c.reports = c.reports.Began(), sinks.Reports{}
	return c.state() != before, reported
}

// retryAt records when the failed attempt is repeated.
func (c *condition) retryAt(next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing.next = next
}

func (c *condition) refuse(e *sinks.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing.record(e)
	c.refused++
}

func (c *condition) delivered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing, c.refused = failure{}, 0
}

func (c *condition) now() Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := Condition{State: c.state(), Pause: c.pause, Refused: c.refused, Parked: c.parked, Paced: c.paced}
	t := &c.failing
	if t.err == nil {
		t = &c.refusing
	}
	n.Since, n.Error, n.Cause, n.Detail, n.Failure, n.NextTry = t.since, t.text, t.cause, t.detail, t.err, t.next
	if c.pause.stored() {
		n.Since, n.Failure, n.NextTry = c.pause.Since, nil, time.Time{}
		if n.Cause = "paused by an operator"; c.pause.Cause == PausedByGuard {
			n.Cause = "held by the guard"
		}
	} else if t.err != nil {
		if due := t.err.Due(); !due.IsZero() {
			n.NextTry = due
		}
	}
	if n.State == StateRunning && n.Paced > 0 {
		n.State = StatePaced
	}
	return n
}

func (c *condition) park(s core.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = Parked{Entities: s.Entities, Rows: s.Rows, Bytes: s.Bytes, Next: s.Next, Full: s.Full}
	if s.Oldest != nil {
		c.parked.Oldest, c.parked.Entity, c.parked.Attempts = s.Oldest.Since, s.Oldest.Entity, s.Oldest.Attempts
		c.parked.Error = shortened(s.Oldest.Reason, maxCondition)
	}
}

// state is the state, without the pace. The caller holds c.mu.
func (c *condition) state() State {
	switch {
	case c.pause != nil:
		return StatePaused
	case c.failing.err != nil:
		return StateRetrying
	}
	return StateRunning
}

// Cause returns the innermost part of an error, without addresses and operations.
func Cause(err error) string {
	var network *net.OpError
	var path *fs.PathError
	var call *os.SyscallError
	switch {
	case errors.As(err, &network):
		if errors.As(network.Err, &call) {
			return call.Err.Error()
		}
		return network.Err.Error()
	case errors.As(err, &path):
		return path.Err.Error()
	}
	return shortened(err.Error(), maxCondition)
}

const (
	maxCondition = 300
	maxDetail    = 4 << 10
)

// shortened returns s as one line of about most bytes.
func shortened(s string, most int) string {
	if s = strings.Join(strings.Fields(s), " "); len(s) > most {
		s = cutTo(s, most) + "…"
	}
	return s
}

// cutTo returns the first n bytes of a text at most, and no half character.
func cutTo(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// stuck reports whether changes of the service wait for its target or an operator.
func (c *condition) stuck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state() != StateRunning
}

// waitForPace notes how many changes wait for the pace.
func (c *condition) waitForPace(changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paced = changes
}

// paused sets the pause in the store, nil for none, and reports whether it began or ended.
func (c *condition) paused(p *Pause) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.pause.stored()
	if p != nil || had {
		c.pause = p
	}
	if changed = had != (p != nil); changed {
		if had {
			c.resumes, c.resumedAt = c.resumes+1, time.Now()
		}
		c.signal()
	}
	return changed
}

// sinkSays sets the pause by the last answer of the sink, unless the store has one. The caller holds c.mu.
func (c *condition) sinkSays(refused bool) {
	switch {
	case c.pause.stored():
	case !refused:
		c.pause = nil
	case c.pause == nil:
		c.pause = &Pause{PausedByRefusal, store.Pause{Since: c.failing.since}}
	}
}

func (c *condition) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signal()
}

// signal wakes waiters. The caller holds c.mu.
func (c *condition) signal() {
	c.change()
	c.changed, c.change = context.WithCancel(context.Background())
}

// isPaused reports whether an operator has to resume the service, and returns a context that ends when the
// answer may have changed.
func (c *condition) isPaused() (is bool, changed context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pause.stored(), c.changed
}

// resumed returns how often the service was resumed, and when last.
func (c *condition) resumed() (times int, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumes, c.resumedAt
}
