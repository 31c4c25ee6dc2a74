package assemble

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// Opened is what a store of either kind can do. Whoever gets one names the few
// methods that it needs in an interface of its own.
type Opened interface {
	store.Store
	store.Jobs
	store.Reports
	store.CheckRows
	store.Imports
	store.Ledger
	store.Attempts
	store.Operations
}

// Store opens the store of a configuration.
func Store(ctx context.Context, c *config.Config, log *slog.Logger) (Opened, error) {
	if p := c.Store.Postgres; p != nil {
		return postgres.Open(ctx, postgres.Options{URL: p.URL.Reveal(), MaxConns: int32(p.MaxConnections), Logger: log})
	}
	// The folder may be the default one, which nobody was asked to make.
	if err := os.MkdirAll(filepath.Dir(c.Store.SQLite.Path), 0o700); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, sqlite.Options{Path: c.Store.SQLite.Path})
}

// writable asks access(2) whether this user may write.
const writable = 2

// StoreToRead opens the store of a configuration as Store does, or, where this
// user may only read a SQLite file or its folder, for reading alone.
func StoreToRead(ctx context.Context, c *config.Config, log *slog.Logger) (Opened, error) {
	if file := c.Store.SQLite; file != nil {
		mayWrite := func(path string) bool { return syscall.Access(path, writable) == nil }
		if !mayWrite(file.Path) || !mayWrite(filepath.Dir(file.Path)) {
			return sqlite.Open(ctx, sqlite.Options{Path: file.Path, ReadOnly: true})
		}
	}
	return Store(ctx, c, log)
}
