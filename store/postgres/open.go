package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/store"
)

// minConns lets Migrate hold its lock on one connection and work on another.
const minConns = 2

// settings of every connection; parameters of the same name in the URL win,
// except the plan's.
var settings = map[string]string{
	"application_name": "weir",
	// A stopped process must not hold its watermarks without end: they are locked
	// while decide computes, which takes far less.
	"idle_in_transaction_session_timeout": "60s",
	"tcp_keepalives_idle":                 "15",
	"tcp_keepalives_interval":             "5",
	"tcp_keepalives_count":                "3",
}

// planSettings keep every statement on its index, see the package comment.
var planSettings = map[string]string{
	"plan_cache_mode":  "force_generic_plan",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"enable_seqscan":   "off",
	"enable_sort":      "off", // where an index has the order
	"jit":              "off",
}

// Options say how to reach the server.
type Options struct {
	// URL is a PostgreSQL connection string, as a URL or as key=value pairs.
	// search_path and pool_… parameters in it are respected.
	URL string
	// MaxConns limits the pool, at least 2. Defaults to pool_max_conns of the
	// URL, else to the larger of 4 and the number of CPUs.
	MaxConns int32
	// Pooled says that the server is a pooler in transaction mode. Defaults to false: then
	// start-up parameters have to reach the server.
	Pooled bool
	// AnswerTimeout is how long the server may take to answer a call or a connection. The call
	// then fails; a migration may take any time. Defaults to one minute.
	AnswerTimeout time.Duration
	// Logger receives the server's notices. Defaults to slog.Default().
	Logger *slog.Logger
}

// Store is a store.Store in PostgreSQL.
type Store struct {
	records
	pool *pgpool.Pool
	set  string // sets parameters for a transaction behind a pooler; else ""
	// migrating counts the migrations under way.
	migrating   *atomic.Int32
	lockTimeout string // the constant, or longer in tests
}

// Open checks the options and prepares a pool. It does not wait for the
// server: a store that is down now may be up at the first call. Close ends it.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		// pgx masks the password, but quotes the rest of a string that may hold a part of it.
		return nil, bug("url: not a PostgreSQL connection string")
	}
	if o.MaxConns > 0 {
		config.MaxConns = o.MaxConns
	}
	config.MaxConns = max(config.MaxConns, minConns)
	for name, value := range settings {
		if _, set := config.ConnConfig.RuntimeParams[name]; !set {
			config.ConnConfig.RuntimeParams[name] = value
		}
	}
	for name, value := range planSettings {
		config.ConnConfig.RuntimeParams[name] = value
	}
	// Statements are prepared once per connection under a cached name.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	var set string
	if o.Pooled {
		if set, err = adaptToPooler(config.ConnConfig); err != nil {
			return nil, bug("%w", err)
		}
	}
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		log.Debug("notice from the store", "event", "store.notice", "code", n.Code, "message", n.Message)
	}
	limit := o.AnswerTimeout
	if limit <= 0 {
		limit = defaultAnswerTimeout
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = limit
	}
	migrating := new(atomic.Int32)
	config.ConnConfig.DialFunc = answering(config.ConnConfig.DialFunc, limit, migrating)
	bypass := bypassWarning{log: log}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerArrays(conn.TypeMap())
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
		if !o.Pooled {
			if err := requireOwnSession(ctx, conn); err != nil {
				return err
			}
		}
		return bypass.check(ctx, conn)
	}
	if crash.Enabled {
		config.ConnConfig.Tracer = dieMigrating{}
	}
	pool, err := pgpool.New(ctx, config)
	if err != nil {
		return nil, store.WithClass(fmt.Errorf("postgres: %w", err), store.Fatal)
	}
	s := &Store{pool: pool, set: set, migrating: migrating, lockTimeout: lockTimeout}
	s.DB, s.Dam = database{s}, s
	return s, nil
}

// dieMigrating passes a crash point between the statements of a migration,
// under the build tag crash.
type dieMigrating struct{}

func (dieMigrating) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "CREATE TABLE audit") {
		crash.At(crash.MigrateHalf, "")
	}
	return ctx
}

func (dieMigrating) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// setSynchronousCommit keeps commits durable for a transaction, see requireOwnSession.
const setSynchronousCommit = `set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

// Ping asks the server for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return failed("ping", s.pool.Ping(ctx))
}

// Close waits for calls under way and closes all connections, for half a second
// where the server does not answer. It may be called twice.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// failed names the operation and sorts the error; nil stays nil.
func failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	return classify(fmt.Errorf("postgres: %s: %w", operation, err))
}

// bug is an error of the caller that no repetition heals.
func bug(format string, args ...any) error {
	return store.WithClass(fmt.Errorf("postgres: "+format, args...), store.Fatal)
}

// pgError finds the server's own error in err, or returns nil.
func pgError(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e
	}
	return nil
}
