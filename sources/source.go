package sources

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// Source is a stream of events that is read. Close ends its subscription. Its
// methods may be called concurrently.
type Source interface {
	message.Subscriber
	// Topic to subscribe to.
	Topic() string
	// Drained reports whether nothing is left that was not acknowledged. Of a source that never
	// ends, at the moment.
	Drained(ctx context.Context) (bool, error)
}

// Optional interfaces of a Source.
type (
	// Failing is a Source that retries on its own.
	Failing interface {
		// Failing returns why nothing is read at present, else nil.
		Failing() error
		// WaitsFor names the missing part then, like "its database".
		WaitsFor() string
	}
	// Log is a Source that knows how many records wait.
	Log interface {
		// Pending returns the number of records that are not acknowledged, perhaps an
		// estimate. It asks the servers.
		Pending(ctx context.Context) (records int64, err error)
	}
	// Transactional is a Source of a log with transactions.
	Transactional interface {
		// Held returns the number of records behind the start of an open transaction, as of
		// the last Pending or Drained, and since when that was seen. They cannot be read
		// before it ends.
		Held() (records int64, since time.Time)
	}
	// Queue is a Source of rows that wait.
	Queue interface {
		Backlog(ctx context.Context) (Backlog, error)
	}
	// Retaining is a Source for which its server keeps a log.
	Retaining interface {
		// Retained returns the size of that log, in bytes, as of the last measurement.
		Retained() int64
	}
	// Snapshotting is a Source that reads the rows of a table before its changes.
	Snapshotting interface {
		// Snapshot returns how many rows were read and how many the table has, an estimate;
		// running is false before and after.
		Snapshot() (read, rows int64, running bool)
	}
	// Standby is a Source that one process reads at a time.
	Standby interface {
		// ReadBy says which other process of the pipeline reads it, until that ends; empty otherwise.
		ReadBy() string
	}
	// Pusher is a Source that requests hand their events to.
	Pusher interface {
		// Push returns an error for each event that is not known to be durable.
		Push(ctx context.Context, events ...*message.Message) []error
	}
)

// Backlog is the pending rows of a Queue.
type Backlog struct {
	Rows   int           // perhaps counted up to a bound only
	Oldest time.Duration // how long the oldest row has waited; 0 when none does
}

// Kind is the configuration of a source of one kind.
type Kind interface {
	config.SourceConfig
	// Open makes the source. A source that cannot be read as it is configured is an error. An
	// unreachable server is waited for later.
	Open(ctx context.Context, e Env) (Source, error)
}

// Env is the environment that a source is opened in.
type Env struct {
	Name string // of the source
	// MaxEvent is the largest event, in bytes.
	MaxEvent int
	// Complete says that the input does not grow: a file is not followed.
	Complete  bool
	Positions store.SourcePositions
	// Stored returns a page of the entities with a stored document of a source, behind an id and
	// in ascending order. An empty one is the end.
	Stored func(ctx context.Context, source, after string) (entities []string, err error)
	// Decided returns when every event that was appended before the call is decided.
	Decided func(ctx context.Context) error
	// Logs are the states of logs that one session at a time reads.
	Logs store.SourceLogs
	// Barrier appends a barrier of a session to each partition of the inbox, with the sequence of the
	// epoch that it reads, and returns when all are decided. It calls waits when a partition takes
	// long, with the reason.
	Barrier func(ctx context.Context, s change.Session, sequence string, waits func(error)) error
	// State is the identity of an inbox that is in the state file, empty for a topic. Positions
	// kept elsewhere are valid for this inbox only.
	State string
	// StoreID tells the store apart from all others.
	StoreID string
	// Cluster says how the cluster of a source, or without brokers the main one,
	// is reached.
	Cluster func(own config.Cluster) (transport.Config, error)
	// Group completes the settings of a consumer group.
	Group func(id string, records int, topic string) transport.GroupConfig
	// OnRecordsLost is called for records that were still wanted and are lost.
	OnRecordsLost func(topic string, partition int32, wanted, got int64)
	// Limit ends the grace of a shutdown.
	Limit  context.Context
	Logger *slog.Logger
	// Shared has what several sources of the process use together.
	Shared *Shared
}

// Shared keeps values by key. Its method may be called concurrently; nil keeps nothing.
type Shared struct {
	mu     sync.Mutex
	values map[string]any // guarded by mu
}

// Of returns the value of a key, made by the first call.
func (s *Shared) Of(key string, first func() any) any {
	if s == nil {
		return first()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[key]; ok {
		return v
	}
	if s.values == nil {
		s.values = map[string]any{}
	}
	v := first()
	s.values[key] = v
	return v
}
