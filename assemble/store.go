package assemble

import (
	"context"
	"log/slog"
	"path/filepath"
	"syscall"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/durable"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// Store has all methods of a store of either kind. Its users declare interfaces of the few
// methods that they need.
type Store interface {
	store.Store
	store.Jobs
	store.Reports
	store.CheckRows
	store.Ledger
	store.Attempts
	store.Operations
}

// OpenStore opens the store of a configuration.
func OpenStore(ctx context.Context, c *config.Config, log *slog.Logger) (Store, error) {
	if p := c.Store.Postgres; p != nil {
		return opened(postgres.Open(ctx, postgres.Options{URL: p.URL.Reveal(), MaxConns: int32(p.MaxConnections), Pooled: p.Pooled, Logger: log}))
	}
	// The folder may be the default one, which need not exist yet.
	if err := durable.MkdirAll(filepath.Dir(c.Store.File), 0o700); err != nil {
		return nil, err
	}
	return opened(sqlite.Open(ctx, sqlite.Options{Path: c.Store.File}))
}

// opened returns no interface around a nil store with an error.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// writable asks access(2) whether this user may write.
const writable = 2

// OpenReadOnly opens the store of a configuration as OpenStore does, or, where this
// user may only read a SQLite file or its folder, for reading alone.
func OpenReadOnly(ctx context.Context, c *config.Config, log *slog.Logger) (Store, error) {
	if file := c.Store.File; file != "" {
		mayWrite := func(path string) bool { return syscall.Access(path, writable) == nil }
		if !mayWrite(file) || !mayWrite(filepath.Dir(file)) {
			return opened(sqlite.Open(ctx, sqlite.Options{Path: file, ReadOnly: true}))
		}
	}
	return OpenStore(ctx, c, log)
}
