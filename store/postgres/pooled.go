package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pooledKey is the hint of every error that a connection pooler causes.
const pooledKey = "set store.postgres.pooled: true for a pooler in transaction mode (PgBouncer)"

// adaptToPooler prepares a configuration for a pooler in transaction mode, where any session
// runs a transaction: statements have no name, and the returned statement sets the
// parameters in each transaction. Its error is a parameter that has to be set elsewhere:
// statements are described outside of transactions, and need search_path there.
func adaptToPooler(c *pgx.ConnConfig) (set string, err error) {
	calls := []string{setSynchronousCommit}
	for _, name := range slices.Sorted(maps.Keys(c.RuntimeParams)) {
		switch {
		case name == "options", name == "search_path":
			return "", fmt.Errorf("url: %s does not pass a pooler; set it for the role (ALTER ROLE … SET) or in the pooler's connect_query", name)
		case slices.Contains([]string{"application_name", "client_encoding", "datestyle", "timezone", "standard_conforming_strings"}, strings.ToLower(name)):
			continue // PgBouncer passes it on
		case !strings.HasPrefix(name, "tcp_keepalives"):
			calls = append(calls, fmt.Sprintf("set_config(%s, %s, true)", quote(name), quote(c.RuntimeParams[name])))
		}
		delete(c.RuntimeParams, name)
	}
	c.DefaultQueryExecMode, c.StatementCacheCapacity = pgx.QueryExecModeCacheDescribe, 0
	return "SELECT " + strings.Join(calls, ", "), nil
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// requireOwnSession corrects a server, role or database that acknowledges commits before they
// are durable, which would break every promise of this package; stronger settings stay. It
// fails if a start-up parameter did not arrive, which a pooler may drop: the correction, too,
// would be that of another session.
func requireOwnSession(ctx context.Context, conn *pgx.Conn) error {
	var plan string
	err := conn.QueryRow(ctx, `SELECT current_setting('plan_cache_mode'), set_config('synchronous_commit', CASE current_setting('synchronous_commit')
WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)`, pgx.QueryExecModeSimpleProtocol).Scan(&plan, nil)
	if err == nil && plan != planSettings["plan_cache_mode"] {
		err = errDropped
	}
	return err
}

// errDropped is a start-up parameter without effect.
var errDropped = errors.New("the server ignores start-up parameters: " + pooledKey)

// poolerRefused reports whether a pooler refused a start-up parameter.
func poolerRefused(e *pgconn.PgError) bool {
	return e.Code == "08P01" && strings.Contains(e.Message, "startup parameter")
}

// ofAnotherSession are SQLSTATEs of a statement or portal that another session has, and of
// a message that it did not expect: behind a pooler that is not configured as one.
var ofAnotherSession = []string{"26000", "34000", "42P03", "42P05", "08P01"}

// sendBatch runs statements as one transaction, none of which begins or ends one.
func (s *Store) sendBatch(ctx context.Context, b *pgx.Batch) error {
	if s.set != "" {
		whole := new(pgx.Batch)
		whole.Queue(s.set)
		whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
		b = whole
	}
	return s.pool.SendBatch(ctx, b).Close()
}
