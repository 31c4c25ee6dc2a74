package shared

import (
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"

	"github.com/seed-86dfc502/weir/store"
)

// VersionTable has the version of the tables; SchemaVersion reads it.
const (
	VersionTable  = "weir_schema_version"
	SchemaVersion = "SELECT coalesce(max(version_id), 0) FROM " + VersionTable + " WHERE is_applied"
)

// Migrations returns the provider of a database's migrations, the folder migrations of files.
func Migrations(dialect goose.Dialect, db *sql.DB, files embed.FS) (*goose.Provider, error) {
	folder, err := fs.Sub(files, "migrations")
	if err == nil {
		var provider *goose.Provider
		provider, err = goose.NewProvider(dialect, db, folder,
			goose.WithTableName(VersionTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
		if err == nil {
			return provider, nil
		}
	}
	return nil, store.WithClass(fmt.Errorf("migrations: %w", err), store.Fatal)
}

// CheckSchema fails with store.ErrSchema unless the tables have the newest version of provider.
func CheckSchema(provider *goose.Provider, have int64) error {
	sources := provider.ListSources()
	if want := sources[len(sources)-1].Version; have != want {
		return store.WithClass(fmt.Errorf("%w: version %d, this build has %d", store.ErrSchema, have, want), store.Fatal)
	}
	return nil
}
