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
}

// check asks about the role of the first connection.
func (b *bypassWarning) check(ctx context.Context, conn *pgx.Conn) error {
	if b.asked.Load() {
		return nil
	}
	var bypasses bool
	err := conn.QueryRow(ctx, `SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user`).Scan(&bypasses)
	if err == nil && b.asked.CompareAndSwap(false, true) && bypasses {
		b.log.Warn("the store's role bypasses row-level security, which keeps tenants apart: give the store an ordinary role (no superuser, no BYPASSRLS) that owns its tables",
			"role", conn.Config().User)
	}
	return err
}
