package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/sources/internal/handout"
	"github.com/seed-86dfc502/weir/sources/internal/setup"
)

// Headers of the records, beside the members of the headers column and the
// UUID. The entity is the key, and a null payload a null value.
const (
	// EventIDMetadata is the value of the event id column, or else a name of the
	// row that no other row of the table ever has.
	EventIDMetadata = "weir-outbox-event-id"
	// OperationMetadata is the value of the operation column.
	OperationMetadata = "weir-outbox-operation"
)

// Columns are the names of the table's columns. ID, Entity and Payload are needed. The others may
// be empty.
type Columns struct {
	// ID is unique, and orders the events of an entity unless Order does.
	ID string `yaml:"id" default:"id"`
	// Order orders the events of an entity, before the id. Needed where ids are random
	// UUIDs and the source has no sequence.
	Order string `yaml:"order"`
	// Entity is the entity's id, of any type, read as text.
	Entity string `yaml:"entity" default:"entity"`
	// Payload is the document: json, jsonb, text or bytea. Null is a delete.
	Payload string `yaml:"payload" default:"payload"`
	// EventID is the producer's id of the event. Defaults to a name of the row.
	EventID string `yaml:"event_id"`
	// Operation of the event. Without it every event is an upsert,
	// except a null payload, which is a delete.
	Operation string `yaml:"operation"`
	// Headers is a JSON object with the headers that sequence: header:NAME reads.
	Headers string `yaml:"headers"`
}

// Options of a Source. All fields are needed unless they say a default.
type Options struct {
	Name    string // of the source
	URL     string
	Table   string // schema.name, or a name on the search_path
	Columns Columns
	// Sequenced says that events have a sequence: ids need not give their order.
	Sequenced bool
	// Batch is the most rows of one take. Defaults to 500.
	Batch int
	// FrameBytes bounds the payloads in memory, which make one frame. A larger one passes alone.
	// Defaults to 4 MiB.
	FrameBytes int
	// Poll is how often an empty table is looked at. Defaults to 1s.
	Poll time.Duration
	// Channel, if given, is listened to: a notification ends the wait of Poll.
	Channel string
	// StopGrace is how long a shutdown waits for the database to delete durable rows.
	// Defaults to 2s.
	StopGrace time.Duration
	// Limit, if given, ends the grace of a shutdown. Its rows are redelivered.
	Limit  context.Context
	Logger *slog.Logger
}

// Source reads the table. Its methods may be called concurrently.
type Source struct {
	opt   Options
	log   *slog.Logger
	table string // quoted
	pool  *pgpool.Pool

	drained   atomic.Bool
	state     state
	described atomic.Pointer[table]
	waits     waits

	subscriptions handout.Subscriptions
}

// New makes a source. It needs no server. An error is a wrong URL or table.
func New(opt Options) (*Source, error) {
	opt.Batch = defaults.Positive(opt.Batch, 500)
	opt.FrameBytes = defaults.Positive(opt.FrameBytes, 4<<20)
	opt.Poll = defaults.Positive(opt.Poll, time.Second)
	opt.StopGrace = defaults.Positive(opt.StopGrace, 2*time.Second)
	opt.Limit = cmp.Or(opt.Limit, context.Background())
	cfg, err := pgxpool.ParseConfig(opt.URL)
	if err != nil {
		return nil, errors.New("the outbox's url cannot be parsed") // the error may show the password
	}
	cfg.MaxConns, cfg.MinConns = 2, 0 // one reads, one asks for the lag
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	// A pooler in transaction mode may be between: statements have no name.
	cfg.ConnConfig.DefaultQueryExecMode, cfg.ConnConfig.StatementCacheCapacity = pgx.QueryExecModeCacheDescribe, 0
	cfg.ConnConfig.RuntimeParams["application_name"] = "weir outbox " + opt.Name
	pool, err := pgpool.New(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return &Source{
		opt: opt, log: opt.Logger.With("source", opt.Name), table: pgx.Identifier(strings.Split(opt.Table, ".")).Sanitize(), pool: pool,
	}, nil
}

// How long a database may take before it counts as not answering.
const (
	connectTimeout   = 10 * time.Second
	statementTimeout = time.Minute
	slow             = 10 * time.Second
)

// SetupError is a fault that no waiting mends.
type SetupError = setup.Error

const kind = "outbox"

func classify(err error) error { return setup.Classify(kind, err) }

// Check reports whether the table can be read as it is configured: a *SetupError
// is its fault, any other error means that the database did not answer.
func (s *Source) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return classify(err)
	}
	defer conn.Release()
	_, err = s.describe(ctx, conn)
	return classify(err)
}

// Topic implements sources.Source.
func (s *Source) Topic() string { return "outbox:" + s.opt.Name }

// Drained implements sources.Source: the last look at the table found nothing that waits.
func (s *Source) Drained(context.Context) (bool, error) { return s.drained.Load(), nil }

// WaitsFor implements sources.Failing.
func (*Source) WaitsFor() string { return "its database" }

// Failing implements sources.Failing.
func (s *Source) Failing() error { return s.state.failing() }

// Subscribe starts reading. topic is only a name for the frames.
// The channel is closed when ctx ends or Close is called.
func (s *Source) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return s.subscriptions.Open(ctx, func(ctx context.Context, out chan<- *message.Message) { s.follow(ctx, topic, out) })
}

// Close ends all subscriptions. Durable rows are deleted, if the database
// answers in time.
func (s *Source) Close() error {
	s.subscriptions.Close()
	s.pool.Close()
	return nil
}

// follow reads until ctx ends, over one connection after the other.
func (s *Source) follow(ctx context.Context, topic string, out chan<- *message.Message) {
	for ctx.Err() == nil {
		// A session that read something is a success: the pauses begin again.
		_, _ = wait.Retry(ctx, ctx, nil, "", func() error {
			read, err := s.session(ctx, topic, out)
			if err == nil || ctx.Err() != nil {
				return err
			}
			s.drained.Store(false)
			if s.state.failed(err) {
				s.log.Warn("outbox unreadable; retrying", "event", "outbox.unreadable", "error", err)
			}
			if read {
				err = nil
			}
			return err
		})
	}
}

// session reads over one connection until it fails, and reports whether it read rows.
func (s *Source) session(ctx context.Context, topic string, out chan<- *message.Message) (read bool, err error) {
	// Work under way may finish within a grace after the shutdown began.
	work, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, s.opt.StopGrace)
	defer cancel()
	defer context.AfterFunc(s.opt.Limit, cancel)()
	s.state.begin()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, classify(err)
	}
	defer conn.Release()
	t := &taker{s: s, conn: conn, topic: topic, out: out}
	if t.table, err = s.describe(work, conn); err != nil {
		return false, classify(err)
	}
	if s.opt.Channel != "" {
		if _, err := conn.Exec(work, "LISTEN "+quote(s.opt.Channel)); err != nil {
			return false, classify(err)
		}
	}
	for {
		s.state.begin()
		n, err := t.take(ctx, work)
		if ctx.Err() != nil {
			return read, nil
		}
		if err != nil {
			return read, classify(err)
		}
		if n > 0 {
			read = true
			s.state.well(s.log)
			continue
		}
		waiting, err := t.waiting(work)
		if err != nil {
			return read, classify(err)
		}
		s.state.well(s.log)
		s.drained.Store(!waiting)
		if err := t.rest(ctx); err != nil {
			return read, err
		}
	}
}

// state is the state of the database, for readiness.
type state struct {
	mu    sync.Mutex
	err   error     // of the last attempt
	since time.Time // when the current call began; zero without one
}

func (s *state) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
}

// idle records that no call to the database is under way.
func (s *state) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

func (s *state) well(log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		log.Info("outbox readable again", "event", "outbox.resumed")
	}
	s.err, s.since = nil, time.Time{}
}

// failed notes a failure and reports whether it is news.
func (s *state) failed(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.err == nil
	s.err, s.since = err, time.Time{}
	return news
}

func (s *state) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.since.IsZero() && time.Since(s.since) > slow {
		return fmt.Errorf("the database has not answered for %s", slow)
	}
	return s.err
}

var (
	_ sources.Failing = (*Source)(nil)
	_ sources.Queue   = (*Source)(nil)
)
