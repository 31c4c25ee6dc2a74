package postgres

import (
	"context"
	"embed"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store/shared"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock keeps two processes from migrating at once. Advisory locks
// are per database, so two schemas of one database wait for each other, which
// does no harm.
const migrationLock = 0x77656972 // "weir"

// Migrate creates or upgrades the tables in the first schema of search_path.
// Several processes may call it at the same time: one works, the others wait
// and find nothing to do.
func (s *Store) Migrate(ctx context.Context) (err error) {
	s.migrating.Add(1)
	defer s.migrating.Add(-1)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return failed("migrate", err)
	}
	defer release(conn)
	// In a transaction, not the session, which a pooler shares.
	b := new(pgx.Batch)
	s.queueBegin(b)
	b.Queue("SET LOCAL idle_in_transaction_session_timeout = 0")
	b.Queue("SELECT pg_advisory_xact_lock($1::bigint)", int64(migrationLock))
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return failed("migrate: lock", err)
	}
	db := stdlib.OpenDBFromPool(s.pool.Pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := shared.Migrations(goose.DialectPostgres, db, migrations)
	if err != nil {
		return err
	}
	crash.At(crash.Migrating, "")
	_, err = provider.Up(ctx)
	crash.At(crash.Migrated, "")
	return failed("migrate", err)
}

// CheckSchema compares the version in the database with the newest migration
// of this build.
func (s *Store) CheckSchema(ctx context.Context) (err error) {
	db := stdlib.OpenDBFromPool(s.pool.Pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := shared.Migrations(goose.DialectPostgres, db, migrations)
	if err != nil {
		return err
	}
	var have int64
	err = s.pool.QueryRow(ctx, shared.SchemaVersion).Scan(&have)
	if pg := pgError(err); pg != nil && pg.Code == "42P01" {
		err = nil // no table yet
	}
	if err == nil {
		err = shared.CheckSchema(provider, have)
	}
	return failed("check schema", err)
}
