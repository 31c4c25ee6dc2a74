package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/sources/internal/handout"
	"github.com/seed-86dfc502/weir/store"
)

// Options of the sources of one slot. All fields are needed unless they say a default.
type Options struct {
	Setup
	// Entities are the columns of the entity id, by table.
	Entities map[string][]string
	// MaxEvents are the sizes in bytes up to which a row is no dead letter, by table; without one any is.
	MaxEvents map[string]int
	// Retain is how much of the log the slot may keep, in bytes, before it is dropped. 0 means
	// any size.
	Retain    int64
	Positions store.SourcePositions
	Logs      store.SourceLogs
	// Barrier is sources.Env.Barrier.
	Barrier func(ctx context.Context, s change.Session, sequence string, waits func(error)) error
	// Pipeline tells this pipeline apart from others that may read the slot.
	Pipeline string
	// Stored and Decided are the fields of sources.Env.
	Stored  func(ctx context.Context, source, after string) ([]string, error)
	Decided func(ctx context.Context) error
	// FrameRecords and FrameBytes bound a frame. They default to 2,000 and 4 MiB.
	FrameRecords int
	FrameBytes   int
	// Readers is how many connections read rows at a time. Defaults to 4.
	Readers int
	// Piece is for how long rows are read, and then changes for at least as long. Defaults to 5s.
	Piece time.Duration
	// Watch is how often slot and tables are compared with their settings. Defaults to 5s.
	Watch time.Duration
	// StopGrace is how long a shutdown waits for the frames in work. Defaults to 2s.
	StopGrace time.Duration
	// Limit, if given, ends that grace.
	Limit context.Context
	// Dial opens connections. Defaults to the network.
	Dial   pgconn.DialFunc
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.FrameRecords = defaults.Positive(o.FrameRecords, 2000)
	o.FrameBytes = defaults.Positive(o.FrameBytes, 4<<20)
	o.Readers = defaults.Positive(o.Readers, 4)
	o.Piece = defaults.Positive(o.Piece, 5*time.Second)
	o.Watch = defaults.Positive(o.Watch, 5*time.Second)
	o.StopGrace = defaults.Positive(o.StopGrace, 2*time.Second)
	o.Limit = cmp.Or(o.Limit, context.Background())
	return o
}

// Source is one table. The sources of a slot share its Reader, which runs while all of them are
// subscribed to. Its methods may be called concurrently.
type Source struct {
	name   string
	table  string
	reader *Reader

	subscriptions handout.Subscriptions

	mu         sync.Mutex
	out        chan<- *message.Message // nil: not subscribed; guarded by mu
	fault      error                   // of this table alone; guarded by mu
	undecided  error                   // set while deletions wait for decisions; guarded by mu
	read, rows int64                   // of the snapshot, an estimate; guarded by mu
	running    bool                    // the snapshot is; guarded by mu
	handing    chan struct{}           // capacity 1: one frame is handed out at a time
	assignment uint64                  // of the session; owned by the reader
	lane       *handout.Lane           // likewise
}

var (
	_ sources.Failing      = (*Source)(nil)
	_ sources.Log          = (*Source)(nil)
	_ sources.Retaining    = (*Source)(nil)
	_ sources.Snapshotting = (*Source)(nil)
	_ sources.Standby      = (*Source)(nil)
)

// Topic implements sources.Source.
func (s *Source) Topic() string { return "postgres:" + s.name }

// Subscribe waits until all sources of the slot are subscribed to, and reads. topic is only a
// name for the frames. The channel is closed when ctx ends or Close is called.
func (s *Source) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	return s.subscriptions.Open(ctx, func(ctx context.Context, out chan<- *message.Message) {
		s.mu.Lock()
		s.out = out
		s.mu.Unlock()
		s.reader.join()
		<-ctx.Done()
		s.reader.leave()
	})
}

// Close ends all subscriptions, and with them the reading of all tables of the slot.
func (s *Source) Close() error {
	s.subscriptions.Close()
	return nil
}

// Drained implements sources.Source: the rows are read, and the changes that were committed
// before the call.
func (s *Source) Drained(ctx context.Context) (bool, error) { return s.reader.drained(ctx) }

// Pending implements sources.Log: the rows of the snapshot that are left, an estimate.
func (s *Source) Pending(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.rows-s.read), nil
}

// Snapshot implements sources.Snapshotting.
func (s *Source) Snapshot() (read, rows int64, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read, max(s.rows, s.read), s.running
}

// Retained implements sources.Retaining; it is the same for all tables of a slot.
func (s *Source) Retained() int64 {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	return s.reader.retained
}

// ReadBy implements sources.Standby.
func (s *Source) ReadBy() string {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	return s.reader.readBy
}

// WaitsFor implements sources.Failing.
func (*Source) WaitsFor() string { return "its database" }

// Failing implements sources.Failing.
func (s *Source) Failing() error {
	s.mu.Lock()
	fault := cmp.Or(s.fault, s.undecided)
	s.mu.Unlock()
	return cmp.Or(fault, s.reader.failing())
}

// setFault notes why the table cannot be read, and reports whether that is news.
func (s *Source) setFault(err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = err != nil && (s.fault == nil || s.fault.Error() != err.Error())
	s.fault = err
	return news
}

// errUndecided is why no change of a table is read.
var errUndecided = errors.New("its stored entities are to be deleted (TRUNCATE), once all earlier events are decided, " +
	"and the inbox is not: is a process with the role work running?")

// undecidedAfter is how long decisions may take until the source reports that it waits for them.
const undecidedAfter = 10 * time.Second

// awaitsDecisions reports a wait for decisions that takes long, until it is called off.
func (s *Source) awaitsDecisions(ctx context.Context) (decided func()) {
	within, cancel := context.WithTimeout(ctx, undecidedAfter)
	var watching sync.WaitGroup
	watching.Go(func() {
		if <-within.Done(); errors.Is(within.Err(), context.DeadlineExceeded) {
			s.setUndecided(errUndecided)
			s.reader.log.Warn("waiting for decisions", "event", "source.undecided", "table", s.table)
		}
	})
	return func() {
		cancel()
		watching.Wait()
		s.setUndecided(nil)
	}
}

func (s *Source) setUndecided(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undecided = err
}

func (s *Source) setSnapshot(read, rows int64, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.rows, s.running = read, rows, running
}

// hand hands out the records of one stream and reports whether they are durable. With left, some were
// set aside, and it is closed when they are durable, too.
func (s *Source) hand(ctx context.Context, stream stream, records []transport.Received, grace time.Duration) (left <-chan struct{}, ok bool) {
	select {
	case s.handing <- struct{}{}:
		defer func() { <-s.handing }()
	case <-ctx.Done():
		return nil, false
	}
	s.mu.Lock()
	out := s.out
	s.mu.Unlock()
	return s.lane.Frame(ctx, out, transport.NewFrame(s.Topic(), stream.id, 0, s.assignment, records), grace)
}

const connectTimeout = 10 * time.Second

// connConfig returns the settings of a connection for values in their text form.
func connConfig(url, name string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the url of the database cannot be parsed") // the error may show the password
	}
	cfg.ConnectTimeout = connectTimeout
	for key, value := range settings {
		cfg.RuntimeParams[key] = value
	}
	cfg.RuntimeParams["application_name"] = name
	cfg.RuntimeParams["statement_timeout"] = "0"
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return cfg, nil
}
