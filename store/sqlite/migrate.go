package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

const versionTable = "weir_schema_version"

const lockPoll = 20 * time.Millisecond

// Migrate creates or upgrades the tables. Several processes may call it at the
// same time: a lock file lets one work while the others wait.
func (s *Store) Migrate(ctx context.Context) (err error) {
	lock := flock.New(s.path + ".lock")
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return failed("migrate: lock", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	provider, err := s.provider()
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
	provider, err := s.provider()
	if err != nil {
		return err
	}
	sources := provider.ListSources()
	want := sources[len(sources)-1].Version
	var tables int
	var have int64
	err = s.readers.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE name = ?`, versionTable).Scan(&tables)
	if err == nil && tables > 0 {
		err = s.readers.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&have)
	}
	if err != nil {
		return failed("check schema", err)
	}
	if have != want {
		return store.WithClass(fmt.Errorf("sqlite: %w: version %d, this build has %d", store.ErrSchema, have, want), store.Fatal)
	}
	return nil
}

func (s *Store) provider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, bug("migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.writer, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, bug("migrations: %w", err)
	}
	return provider, nil
}
