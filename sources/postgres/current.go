package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// lookup is the question for the row that an entity has now.
type lookup struct {
	columns  []string // to read
	entity   []string // values of the entity's columns
	filtered bool     // the row counts only if the publication's row filter lets it through
}

// The number of a transaction has 32 bits in the log. sqlVisible takes it for the nearest number of 64.
const sqlVisible = `SELECT txid_visible_in_snapshot(next - ((((next - $1) + 2147483648) % 4294967296 + 4294967296) % 4294967296 - 2147483648), now)
FROM (SELECT s AS now, txid_snapshot_xmax(s) AS next FROM txid_current_snapshot() s) snapshot`

// visible returns when statements that begin later see a transaction.
func (s *session) visible(ctx context.Context, xid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var is bool
		if err := s.db.QueryRow(ctx, sqlVisible, int64(xid)).Scan(&is); err != nil || is {
			return err
		}
		if !wait.Sleep(ctx, pause) {
			return fmt.Errorf("transaction %d is in the log and waits, perhaps for a synchronous standby: %w", xid, context.Cause(ctx))
		}
	}
}

// current returns the row of an entity as it is now: the columns that the log left out of an earlier change. A
// later change of the row is still to come. It returns nil without a row, and a rereadError if the
// table is another one by now.
func (t *table) current(ctx context.Context, q lookup) ([]value, error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	db := t.s.db
	changed := &rereadError{t, "it changed while a row was read that the log has in parts"}
	var same bool
	if err := db.QueryRow(ctx, "SELECT coalesce(to_regclass($1)::oid = $2, false)", quoteTable(t.name), t.state.OID).Scan(&same); err != nil {
		return nil, err
	}
	if !same {
		return nil, changed
	}
	types, err := keyTypes(ctx, db, t.name, t.state.Entity)
	if err != nil {
		return nil, err
	}
	var columns, conditions []string
	var params [][]byte
	for _, column := range q.columns {
		columns = append(columns, quote(column))
	}
	for i, column := range t.state.Entity {
		params = append(params, []byte(q.entity[i]))
		conditions = append(conditions, fmt.Sprintf("%s = $%d::text::%s", quote(column), i+1, types[i]))
	}
	if q.filtered && t.state.filter != "" {
		conditions = append(conditions, "("+t.state.filter+")")
	}
	result := db.PgConn().ExecParams(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+quoteTable(t.name)+" WHERE "+strings.Join(conditions, " AND ")+" LIMIT 1",
		params, nil, nil, nil).Read()
	var server *pgconn.PgError
	switch {
	case errors.As(result.Err, &server) && strings.HasPrefix(server.Code, "42"):
		return nil, changed
	case result.Err != nil:
		return nil, result.Err
	case len(result.Rows) == 0:
		return nil, nil
	}
	row := make([]value, len(q.columns))
	for i, text := range result.Rows[0] {
		row[i].text = text
	}
	return row, nil
}
