package postgres

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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// Reader reads a slot for the sources of its tables, one session after the other. Its methods may
// be called concurrently.
type Reader struct {
	opt         Options
	application string // by which the database knows the reader
	log         *slog.Logger
	sources     map[string]*Source // by table

	mu       sync.Mutex
	joined   int                // subscribed sources; guarded by mu
	stop     context.CancelFunc // of the run under way; guarded by mu
	ended    chan struct{}      // closed when it has ended; guarded by mu
	err      error              // of the last session; guarded by mu
	waits    error              // what the session under way waits for; guarded by mu
	readBy   string             // the process that reads instead, as it was logged; guarded by mu
	retained int64              // bytes of the log that the slot keeps; guarded by mu

	reading atomic.Bool   // changes are read, and all rows are
	flushed atomic.Int64  // every change before it is durable
	asked   chan struct{} // capacity 1: the server is to say where its log ends
}

// NewReader makes a reader and its sources, by table. names holds the sources' names.
func NewReader(opt Options, names map[string]string) *Reader {
	r := &Reader{application: applicationName(opt.Source, opt.Pipeline), opt: opt.withDefaults(), log: opt.Logger.With("source", opt.Source), sources: map[string]*Source{}, asked: make(chan struct{}, 1)}
	for table := range opt.Entities {
		r.sources[table] = &Source{name: names[table], table: table, reader: r, handing: make(chan struct{}, 1)}
	}
	return r
}

// Source returns the source of a table.
func (r *Reader) Source(table string) *Source { return r.sources[table] }

// join begins to read when all sources have joined.
func (r *Reader) join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.joined++; r.joined < len(r.sources) || r.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.ended = cancel, make(chan struct{})
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
}

// leave ends the reading and returns when nothing is handed out any more.
func (r *Reader) leave() {
	r.mu.Lock()
	r.joined--
	stop, ended := r.stop, r.ended
	r.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.joined == 0 {
		r.stop = nil
	}
}

// run reads until ctx ends.
func (r *Reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		// A session of a minute is a success: the pauses begin again.
		_, _ = wait.Retry(ctx, ctx, nil, "", func() error {
			began := time.Now()
			err := r.session(ctx)
			r.reading.Store(false)
			if ctx.Err() != nil {
				return err
			}
			again := errors.Is(err, errAgain)
			if err = classify(err); !again && r.setError(err) {
				r.log.Warn("database unreadable; retrying", "event", "source.unreadable", "error", err)
			}
			if again || time.Since(began) > time.Minute {
				err = nil
			}
			return err
		})
	}
}

// errAgain ends a session that another one is to follow at once.
var errAgain = errors.New("the session begins again")

// setError notes the fault of a session and reports whether it is another one.
func (r *Reader) setError(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := err != nil && (r.err == nil || r.err.Error() != err.Error())
	r.err = err
	return news
}

func (r *Reader) failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.joined < len(r.sources) {
		return fmt.Errorf("%d of %d sources of the slot are open, it is read when all are", r.joined, len(r.sources))
	}
	return cmp.Or(r.waits, r.err)
}

// setWaits records why a session waits, nil when it does not.
func (r *Reader) setWaits(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits = why; why != nil {
		r.log.Warn("the session waits", "event", "source.waits", "error", why)
	}
}

// connect opens a connection for statements.
func (r *Reader) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := r.connConfig()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, pooled(err)
}

// pooled returns a SetupError if a connection pooler refused a connection.
func pooled(err error) error {
	if server := new(pgconn.PgError); errors.As(err, &server) && strings.Contains(server.Message, "unsupported startup parameter") {
		return faultf("a connection pooler is in front of the database, which passes on no replication: name the database itself in url (%s)", server.Message)
	}
	return err
}

// connConfig returns the settings of the reader's connections.
func (r *Reader) connConfig() (*pgx.ConnConfig, error) {
	cfg, err := connConfig(r.opt.URL, r.application)
	if err == nil && r.opt.Dial != nil {
		cfg.DialFunc = r.opt.Dial
	}
	return cfg, err
}

// drained reports whether all that was committed before the call is durable. It waits a second for it.
func (r *Reader) drained(ctx context.Context) (bool, error) {
	if !r.reading.Load() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := r.connect(ctx)
	if err != nil {
		return false, classify(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var end int64
	if err := conn.QueryRow(ctx, "SELECT "+bytesOf(currentPosition)).Scan(&end); err != nil {
		return false, classify(err)
	}
	for range 100 {
		if r.flushed.Load() >= end {
			return r.reading.Load(), nil
		}
		wait.Offer(r.asked, struct{}{})
		if !wait.Sleep(ctx, 10*time.Millisecond) {
			return false, ctx.Err()
		}
	}
	return false, nil
}

// stored calls each with the entities behind an id that have a document of a source, page by page, which
// it reads within during.
func (r *Reader) stored(ctx context.Context, source *Source, after string, during func(context.Context, func(context.Context) error) error, each func(ids []string) error) error {
	for {
		var ids []string
		err := during(ctx, func(ctx context.Context) (err error) {
			ids, err = r.opt.Stored(ctx, source.name, after)
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := each(ids); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}

// readTable describes a table of the reader.
func (r *Reader) readTable(ctx context.Context, db querier, version int, table string) (tableState, error) {
	return readTable(ctx, db, version, r.opt.Publication, table, r.opt.Entities[table])
}

// check reports what keeps the table from being read: a *SetupError is a fault of the setup.
// prepared says that publication and slot must be there; then it may be a *reach.Advice.
func (s *Source) check(ctx context.Context, prepared bool) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	r := s.reader
	conn, err := r.connect(ctx)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	server, err := readServer(ctx, conn)
	if err != nil {
		return classify(err)
	}
	t, err := r.readTable(ctx, conn, server.version, s.table)
	if err != nil {
		return classify(err)
	}
	published := t.published || !prepared
	t.published = true
	if err := t.check(s.table, r.opt.Publication); err != nil {
		return err
	}
	var role string
	var replicates bool
	if err := conn.QueryRow(ctx, `SELECT current_user::text, (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)`).Scan(&role, &replicates); err != nil {
		return classify(err)
	}
	if !replicates { // managed services have roles whose members may
		conn, err := r.replication(ctx)
		if replicates = err == nil; replicates {
			_ = conn.Close(ctx)
		}
	}
	switch {
	case !replicates:
		return faultf("role %q may not replicate: ALTER ROLE %s REPLICATION", role, quote(role))
	case !prepared:
		return nil
	}
	slot, err := readSlot(ctx, conn, server.version, r.opt.Slot)
	if err != nil {
		return classify(err)
	}
	if !slot.exists {
		return notSetUp(ctx, conn, r.opt.Publication, s.table, role)
	}
	t.published = published
	if err := t.check(s.table, r.opt.Publication); err != nil {
		return err
	}
	if err := slot.check(r.opt.Slot, server.database, false); err != nil {
		return err
	}
	return cmp.Or(r.opt.older(ctx, conn), slot.advice(r.opt.Slot))
}

// server is the server and the database.
type server struct {
	version  int
	database string
	oid      uint32
	position int64 // the end of its log
}

func readServer(ctx context.Context, db querier) (s server, err error) {
	var level string
	var standby bool
	err = db.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('wal_level'), current_database()::text, pg_is_in_recovery(),
		(SELECT oid FROM pg_database WHERE datname = current_database()), `+bytesOf(currentPosition)).Scan(&s.version, &level, &s.database, &standby, &s.oid, &s.position)
	if err != nil {
		return s, err
	}
	return s, checkServer(s.version, level, standby)
}
