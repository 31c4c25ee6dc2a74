package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// bypassWarning says once that row-level security does not hold for the store's
// role: then only the predicates of this package's own statements keep tenants
// apart.
type bypassWarning struct {
	log   *slog.Logger
	asked atomic.Bool
	// audited says that other roles' rights were looked at.
	audited atomic.Bool
}

// check asks about the role of the first connection.
func (b *bypassWarning) check(ctx context.Context, conn *pgx.Conn) error {
	if b.asked.Load() && b.audited.Load() {
		return nil
	}
	var bypasses bool
	err := conn.QueryRow(ctx, `SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user`).Scan(&bypasses)
	if err == nil && b.asked.CompareAndSwap(false, true) && bypasses {
		b.log.Warn("the store's role bypasses row-level security, which keeps tenants apart: give the store an ordinary role (no superuser, no BYPASSRLS) that owns its tables",
			"role", conn.Config().User)
	}
	if err != nil {
		return err
	}
	return b.audit(ctx, conn)
}

// audit names the other roles that have rights on the tables of tenants. Any role
// may set weir.pipeline, which opens the policies: only that it has no right to
// the tables keeps it out. Superusers are above all of this.
func (b *bypassWarning) audit(ctx context.Context, conn *pgx.Conn) error {
	if !b.audited.CompareAndSwap(false, true) {
		return nil
	}
	var others []string
	err := conn.QueryRow(ctx, `SELECT coalesce(array_agg(DISTINCT r.rolname::text ORDER BY r.rolname::text), '{}')
		FROM pg_roles r, unnest(ARRAY['ledger', 'ledger_decided', 'imports', 'import_results']) t
		WHERE r.rolname <> current_user AND r.rolcanlogin AND NOT r.rolsuper AND to_regclass(t) IS NOT NULL
		AND has_table_privilege(r.oid, to_regclass(t), 'SELECT, INSERT, UPDATE, DELETE')`).Scan(&others)
	if err == nil && len(others) > 0 {
		b.log.Warn("other roles have rights on the tables of tenants, so they reach the rows of all of them by setting weir.pipeline: take the rights back",
			"roles", others)
	}
	return err
}
