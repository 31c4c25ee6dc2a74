package pgpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pooler finds out whether the server is a pooler in front of PostgreSQL (PgBouncer and the
// like) and adapts to it: in transaction mode the session of a statement is any. There
// start-up parameters are refused and named statements are unknown in the next transaction,
// so parameters are set in each transaction, and statements have no name.
type pooler struct {
	set string // the statement that sets the parameters for a transaction

	mu    sync.Mutex    // held while the server is asked
	state atomic.Uint32 // one of these
}

const (
	unknown = iota
	direct
	pooled
)

// ErrPooled is a parameter of the connection string that has no effect behind a pooler.
var ErrPooled = errors.New("the server is a connection pooler, which does not pass this parameter on")

// passed are the start-up parameters that PgBouncer takes.
var passed = []string{"application_name", "client_encoding", "datestyle", "timezone", "standard_conforming_strings"}

func newPooler(parameters map[string]string, further []string) *pooler {
	p := new(pooler)
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(passed, strings.ToLower(name)) && !strings.HasPrefix(name, "tcp_keepalives") {
			calls = append(calls, fmt.Sprintf("set_config(%s, %s, true)", quote(name), quote(parameters[name])))
		}
	}
	calls = append(calls, further...)
	if len(calls) > 0 {
		p.set = "SELECT " + strings.Join(calls, ", ")
	}
	return p
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// configure prepares the configuration of one connection.
func (p *pooler) configure(ctx context.Context, c *pgx.ConnConfig) error {
	plain := c.Copy()
	maps.DeleteFunc(plain.RuntimeParams, func(name, _ string) bool { return !slices.Contains(passed, strings.ToLower(name)) })
	if err := p.find(ctx, &plain.Config); err != nil {
		return err
	}
	if p.state.Load() == pooled {
		for _, name := range []string{"options", "search_path"} { // statements are described outside of transactions
			if c.RuntimeParams[name] != "" {
				return fmt.Errorf("%w: %s; set it for the role (ALTER ROLE … SET) or in the pooler's connect_query", ErrPooled, name)
			}
		}
		c.RuntimeParams = plain.RuntimeParams
		c.StatementCacheCapacity = 0
		if c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
	}
	return nil
}

// find asks the server once. A pooler makes up the process ids of its sessions.
func (p *pooler) find(ctx context.Context, c *pgconn.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Load() != unknown {
		return nil
	}
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	results, err := conn.Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return err
	}
	if len(results) == 1 && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) != fmt.Sprint(conn.PID()) {
		p.state.Store(pooled)
	} else {
		p.state.Store(direct)
	}
	return nil
}

// Settings returns the statement that a transaction begins with, since it has a session
// that other clients had before; "" on a connection of its own. It is known once a
// connection was acquired.
func (p *Pool) Settings() string {
	if p.pooler.state.Load() == pooled {
		return p.pooler.set
	}
	return ""
}

// SessionError reports whether a statement failed for the session that it ran in: a
// prepared statement that another session has, or a pooler that refuses a parameter. It
// says nothing about the statement or its tables.
func SessionError(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains([]string{
		"26000", // the prepared statement does not exist
		"42P05", // … exists already
		"34000", // the portal does not exist
		"42P03", // … exists already
		"08P01", // the message was not expected
	}, e.Code)
}

// settings is Settings, and acquires a connection if none was.
func (p *Pool) settings(ctx context.Context) (string, error) {
	if p.pooler.state.Load() == unknown {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return "", err
		}
		conn.Release()
	}
	return p.Settings(), nil
}

// SendBatch is that of pgxpool.Pool, with Settings. The batch is one transaction, which
// none of its statements begins or ends.
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	set, err := p.settings(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	if set == "" {
		return p.Pool.SendBatch(ctx, b)
	}
	whole := new(pgx.Batch)
	whole.Queue(set)
	whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
	results := p.Pool.SendBatch(ctx, whole)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return pgx.FailedBatchResults(b, err)
	}
	return results
}

// Exec is that of pgxpool.Pool, with Settings.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if set, err := p.settings(ctx); err != nil || set == "" {
		return p.Pool.Exec(ctx, sql, args...)
	}
	b := new(pgx.Batch)
	b.Queue(sql, args...)
	results := p.SendBatch(ctx, b)
	tag, err := results.Exec()
	return tag, errors.Join(err, results.Close())
}

// Query is that of pgxpool.Pool, with Settings.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if set, err := p.settings(ctx); err != nil || set == "" {
		return p.Pool.Query(ctx, sql, args...)
	}
	b := new(pgx.Batch)
	b.Queue(sql, args...)
	results := p.SendBatch(ctx, b)
	found, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	return &rows{Rows: found, results: results}, nil
}

// QueryRow is that of pgxpool.Pool, with Settings.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if set, err := p.settings(ctx); err != nil || set == "" {
		return p.Pool.QueryRow(ctx, sql, args...)
	}
	b := new(pgx.Batch)
	b.Queue(sql, args...)
	return row{p.SendBatch(ctx, b)}
}

// rows are all of a batch of one query, which they end.
type rows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *rows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err = r.results.Close()
		r.results = nil
	}
}

func (r *rows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// row is that of a batch of one query, which it ends.
type row struct{ results pgx.BatchResults }

func (r row) Scan(into ...any) error {
	err := r.results.QueryRow().Scan(into...)
	if end := r.results.Close(); err == nil {
		err = end
	}
	return err
}
