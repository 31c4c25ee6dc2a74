package sqlite

import (
	"context"
	"embed"
	"errors"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store/shared"
)

//go:embed migrations/*.sql
var migrations embed.FS

const lockPoll = 20 * time.Millisecond

// Migrate creates or upgrades the tables. Several processes may call it at the
// same time: a lock file lets one work while the others wait.
func (s *Store) Migrate(ctx context.Context) (err error) {
	lock := flock.New(s.path + ".lock")
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return failed("migrate: lock", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	provider, err := shared.Migrations(goose.DialectSQLite3, s.writer, migrations)
	if err != nil {
		return err
	}
	crash.At(crash.Migrating, "")
	err = s.retryBusy(ctx, func() error {
		_, err := provider.Up(ctx)
		return err
	})
	crash.At(crash.Migrated, "")
	return failed("migrate", err)
}

// CheckSchema compares the version in the file with the newest migration of
// this build.
func (s *Store) CheckSchema(ctx context.Context) error {
	provider, err := shared.Migrations(goose.DialectSQLite3, s.writer, migrations)
	if err != nil {
		return err
	}
	var tables int
	var have int64
	err = s.readers.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE name = ?`, shared.VersionTable).Scan(&tables)
	if err == nil && tables > 0 {
		err = s.readers.QueryRowContext(ctx, shared.SchemaVersion).Scan(&have)
	}
	if err == nil {
		err = shared.CheckSchema(provider, have)
	}
	return failed("check schema", err)
}
