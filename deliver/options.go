package deliver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

var (
	errStopped  = errors.New("deliver is stopping")
	errRevoked  = errors.New("the partition is no longer this process's")
	errWentBack = errors.New("the log in the store ends before a frame that it had")
)

// ErrLost is what Run returns, wrapped, when the store has a partition that is assigned
// to this process under another token: the store was restored, or another process took
// it over. Deliver has to restart from the store's progress.
var ErrLost = errors.New("the progress of a partition is no longer this process's")

// Store is what deliver needs of the store.
type Store interface {
	store.Deliveries
	Admit(ctx context.Context, a store.Admission) ([]store.Admitted, *store.Pause, error)
	Retrying(ctx context.Context, keys []string) ([]store.DeadLetter, error)
	Offered(ctx context.Context, ids []int64) error
	AddLetters(ctx context.Context, letters []store.DeadLetter) error
	DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error)
	Letter(ctx context.Context, id int64) (store.DeadLetter, error)
}

// Retry bounds the attempts at one change.
type Retry struct {
	// For is how long a change is tried that its target answers with an error, before it is
	// given up: core.Service has the rule. Defaults to 24h.
	For time.Duration
	// MinBackoff and MaxBackoff bound the wait between attempts. Default to
	// 200ms and 30s.
	MinBackoff, MaxBackoff time.Duration
	// Later is when a change whose attempts all failed is offered again for the first time; the
	// wait doubles from there, up to a day. 0 means never.
	Later time.Duration
}

// Service is one service to deliver.
type Service struct {
	Name   string
	Number int32 // the store's number of it
	Sink   sinks.Sink
	Retry  Retry
	// History says that Options.History gets the attempts.
	History bool
	Guard   Guard
	Pace    Pace
	// Refresh is the period in which each unchanged entity is sent again. 0 means never.
	Refresh time.Duration
}

// Options of a Stage. All fields are needed unless they say a default.
type Options struct {
	Services []Service
	// Revision is the revision of this process's configuration. A change of an older one that the
	// sink refuses is decided again; one of a newer one is not this process's to deliver.
	Revision int64
	// Superseded is called, from any goroutine and perhaps often, when a change of
	// a newer revision came. It must not block.
	Superseded func()
	Store      Store
	// History, if given, keeps the attempts of services that have one. Neither its
	// pace nor its failures hold up a delivery.
	History Attempts
	// Feed are the topic and the times of the stage's subscription to the changes log.
	Feed transport.GroupConfig
	// Control appends control records to the inbox and returns when they are durable.
	Control func(ctx context.Context, controls ...change.Record) error
	// Partition returns the inbox partition in which a version of an entity was
	// decided: another generation of the inbox may have had another number of them.
	// For an unknown generation it is the partition in the newest one.
	Partition func(entity string, version change.Version) int32
	// InboxEnd returns the position that the next record of an inbox partition gets.
	InboxEnd func(ctx context.Context, partition int32) (change.Version, error)
	// Partitions is the number of inbox partitions, of all processes. Defaults to 1.
	Partitions int
	// Memory is how many bytes of changes may wait for sinks, over all services.
	// Defaults to 64 MiB.
	Memory int64
	// StopGrace is how long a write in flight may take at a shutdown. Defaults to 5s.
	StopGrace time.Duration
	// Paused are the services that an operator or the guard has paused, by name.
	Paused map[string]store.Pause
	// Now is the time of the guard's windows and of refreshes. Defaults to time.Now.
	Now func() time.Time
	// Limit, if given, ends everything that a shutdown lets finish (writes, reads,
	// progress): the changes are redelivered, with their keys.
	Limit   context.Context
	Logger  *slog.Logger
	Metrics *Metrics
	// Tracer makes spans of traced changes. Defaults to none: sinks pass no trace
	// context on then.
	Tracer *tracing.Tracer
}

// Guard holds a service before more than a share of its entities would change within a window.
// The zero value guards nothing.
type Guard struct {
	Retract, Update float64 // shares of the service's entities; 0 disables the guard
	Min             int64   // number of entities that may change in any case
	Window          time.Duration
}

// share returns the share of the entities that changes of a kind may reach.
func (g *Guard) share(kind store.GuardKind) float64 {
	if kind == store.GuardRetract {
		return g.Retract
	}
	return g.Update
}

// Pace holds the changes of a service back on purpose. The zero value holds nothing back.
type Pace struct {
	// Rate is the attempts at changes per second, over all processes. 0 means no limit. Burst is
	// how many follow at once after a pause.
	Rate  float64
	Burst int
	// Settle is how long an entity must be quiet before it is sent; it is sent at the latest
	// SettleMax after the first of its unsent changes. 0 means at once. A sinks.Recoverer does
	// not support it: its bookmark passes changes in their order.
	Settle, SettleMax time.Duration
}

// Attempts is the store's side of the delivery history.
type Attempts interface {
	AddAttempts(ctx context.Context, attempts []store.Attempt) error
}
