package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// Log has the operations of the cluster that actions need. transport.Admin implements it.
type Log interface {
	Offsets(ctx context.Context, topic string) (start, end map[int32]int64, err error)
	OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int32]int64, error)
	Scan(ctx context.Context, topic string, from, to map[int32]int64, f func(transport.Scanned) error) error
}

// Env is the environment of actions that append to the inbox or read the logs. All fields are
// required unless they name a default. An Env may be used from any goroutine.
type Env struct {
	Store Store
	// Plan is the compiled active configuration.
	Plan *decide.Plan
	// Checks are the check services of that configuration. A service with the number 0
	// has never been asked, and has no rows.
	Checks []checks.Service
	// Inbox is the current generation of the inbox.
	Inbox store.Inbox
	// Append appends to the inbox.
	Append transport.Appender
	Log    Log
	// Shape returns the parser of a source's events. It fails for a source that the configuration
	// does not have.
	Shape func(source string) (ingest.Extractor, error)
	// IsLog reports whether a service's sink keeps every change (sinks.Log).
	IsLog func(service string) bool
	// Target opens a service's target for reading, without changing it. The caller closes it. The
	// error is an *InvalidRequestError for a sink that cannot be read back.
	Target func(ctx context.Context, service string) (*Target, error)
	// Decide decides the inbox and returns when nothing is left. It returns false when another
	// process decides. Nil with servers.
	Decide func(ctx context.Context) (bool, error)
	// Alone says that no other process decides.
	Alone bool
	// Actor is who asks, for the audit: user@host.
	Actor    string
	Progress Shown
}

// Target is a target that can be read back.
type Target struct {
	sinks.Scannable
	// Forgets reports that the target expires old rows.
	Forgets bool
}

// InvalidRequestError is a request that never succeeds as it is: an unknown service, a letter that is no event.
type InvalidRequestError struct{ Reason string }

// Error returns the reason.
func (e *InvalidRequestError) Error() string { return e.Reason }

// Invalid returns an *InvalidRequestError.
func Invalid(format string, args ...any) error {
	return &InvalidRequestError{fmt.Sprintf(format, args...)}
}

// send appends records to the inbox and returns when they are acknowledged.
func (e *Env) send(ctx context.Context, records []change.Record) error {
	out, err := InboxRecords(e.Inbox.Topic, records)
	if err != nil || len(out) == 0 {
		return err
	}
	return e.Append.Append(ctx, out)
}

// InboxRecords encodes records for the topic of an inbox.
func InboxRecords(topic string, records []change.Record) ([]transport.Record, error) {
	out := make([]transport.Record, len(records))
	for i, r := range records {
		key, head, value, err := change.EncodeRecord(r)
		if err != nil {
			return nil, err
		}
		out[i] = transport.Record{Topic: topic, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}}
	}
	return out, nil
}

const waitPoll = 100 * time.Millisecond

// Wait returns when everything that was in the inbox at its call is decided:
// every partition's watermark has passed its end at the call. Embedded, without another
// deciding process, it decides itself. Deliveries are not awaited. It fails when a newer
// generation of the inbox is opened meanwhile.
func (e *Env) Wait(ctx context.Context) error {
	_, ends, err := e.Log.Offsets(ctx, e.Inbox.Topic)
	if err != nil {
		return err
	}
	for {
		if e.Decide != nil {
			if decided, err := e.Decide(ctx); decided || err != nil {
				return err
			}
		}
		marks, err := e.Store.Watermarks(ctx)
		if err != nil {
			return fmt.Errorf("wait for the decision: %w", err)
		}
		behind := false
		for n, end := range ends {
			behind = behind || marks[store.Partition{Generation: e.Inbox.Generation, Number: n}] < end
		}
		if !behind {
			return nil
		}
		for p := range marks {
			// The marks of a generation with a successor do not move.
			if p.Generation > e.Inbox.Generation {
				return fmt.Errorf("the inbox got a newer generation (%d) during the wait for the decision: weir status says what is left to decide", p.Generation)
			}
		}
		if !wait.Sleep(ctx, waitPoll) {
			return errors.Join(errors.New("the wait for the decision was cut off; the records are in the inbox and will be decided"), context.Cause(ctx))
		}
	}
}

// audit records an action.
func (e *Env) audit(ctx context.Context, a store.Audit) error {
	a.Actor = e.Actor
	return e.Store.AddAudits(ctx, []store.Audit{a})
}

// pace lets a number of units pass per second. The zero pace lets all pass.
type pace struct {
	perSecond float64
	next      time.Time
}

// longestPause is some thirty years in seconds, which a duration can hold.
const longestPause = 1e9

// wait returns when n more units may pass, or ctx ends.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.perSecond <= 0 || n == 0 {
		return ctx.Err()
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	delay := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(min(float64(n)/p.perSecond, longestPause) * float64(time.Second)))
	if delay <= 0 {
		return ctx.Err()
	}
	if !wait.Sleep(ctx, delay) {
		return context.Cause(ctx)
	}
	return nil
}
