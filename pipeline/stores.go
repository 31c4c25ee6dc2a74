package pipeline

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// Store is what a process asks of its store: what its stages, commands and
// page do, and what it does itself.
type Store interface {
	operate.Store // with that of decide
	deliver.Store
	revisions
	retention
	store.Reports
	store.Positions
	store.Imports
	store.Ledger
	store.Attempts

	CheckSchema(ctx context.Context) error
	Migrate(ctx context.Context) error
	Ping(ctx context.Context) error
	Close() error

	CountLettersOf(ctx context.Context, source string, most int64) (int64, error)
	CountLetters(ctx context.Context) (map[store.Stage]int64, error)
	GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error)
	KnownInbox(ctx context.Context, topic, topicID string) (store.Inbox, error)
	ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, atLeast uint16) (store.Inbox, error)
	RenewInbox(ctx context.Context, inbox store.Inbox, atLeast uint16, from map[int32]int64) (store.Inbox, error)
	Outboxes(ctx context.Context) (map[store.Partition]int64, error)
}

// revisions is what whoever follows the active configuration asks of a store.
type revisions interface {
	Activate(ctx context.Context, fingerprint []byte, above int64, force bool) (store.Revision, error)
	Active(ctx context.Context) (store.Revision, error)
	Revisions(ctx context.Context, limit int) ([]store.Revision, error)
}

// retention is what the housekeeper asks of a store.
type retention interface {
	Tombstones(ctx context.Context, before time.Time, after string, limit int) ([]store.Tombstone, error)
	Prune(ctx context.Context, letters, audit time.Time) (int, error)
	RetainClaims(ctx context.Context, keep time.Duration) (dropped int, err error)
	RetainAttempts(ctx context.Context, bounds map[int32]store.AttemptBound, others store.AttemptBound) (int64, error)
}
