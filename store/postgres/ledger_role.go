package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// bypassWarning says once where row-level security does not keep tenants apart: for the
// store's role, when only the predicates of this package's own statements do, and for other
// roles with rights on the tables of tenants. Any role may set weir.pipeline, which opens the
// policies. Superusers are above all of this.
type bypassWarning struct {
	log   *slog.Logger
	asked atomic.Bool
}

// check asks about the roles on the first connection.
func (b *bypassWarning) check(ctx context.Context, conn *pgx.Conn) error {
	if b.asked.Load() {
		return nil
	}
	var bypasses bool
	var others []string
	err := conn.QueryRow(ctx, `SELECT rolsuper OR rolbypassrls, ARRAY(SELECT DISTINCT r.rolname::text
		FROM pg_roles r, unnest(ARRAY['ledger', 'ledger_decided', 'jobs']) t
		WHERE r.rolname <> current_user AND r.rolcanlogin AND NOT r.rolsuper AND to_regclass(t) IS NOT NULL
		AND has_table_privilege(r.oid, to_regclass(t), 'SELECT, INSERT, UPDATE, DELETE') ORDER BY 1)
		FROM pg_roles WHERE rolname = current_user`).Scan(&bypasses, &others)
	if err != nil || !b.asked.CompareAndSwap(false, true) {
		return err
	}
	if bypasses {
		b.log.Warn("the store's role bypasses row-level security, which keeps tenants apart: give the store an ordinary role (no superuser, no BYPASSRLS) that owns its tables",
			"event", "store.rls_bypassed", "role", conn.Config().User)
	}
	if len(others) > 0 {
		b.log.Warn("other roles have rights on the tables of tenants, so they reach the rows of all of them by setting weir.pipeline: take the rights back",
			"event", "store.roles_with_rights", "roles", others)
	}
	return nil
}
