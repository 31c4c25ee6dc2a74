package operate

import (
	"context"

	"github.com/seed-86dfc502/weir/store"
)

// Store is the part of the store that actions need.
type Store interface {
	store.Decisions
	store.Jobs
	store.CheckRows
	store.Reports
	GuardStore
	LetterStore
	DeliveryStore

	Entity(ctx context.Context, id string) (store.Entity, error)
	Entities(ctx context.Context, after string, limit int) ([]store.Entity, error)
	CountEntities(ctx context.Context) (int64, error)
	Rows(ctx context.Context, keys []store.Key) ([]store.Row, error)
	ServiceRows(ctx context.Context, service int32, after string, limit int) ([]store.Row, error)
	ServiceCheckRows(ctx context.Context, service int32, after string, limit int) ([]store.CheckRow, error)
	Services(ctx context.Context, names []string) (map[string]int32, error)
}

// LetterStore is the part of the store for dead letters and audit rows.
type LetterStore interface {
	ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error)
	Letter(ctx context.Context, id int64) (store.DeadLetter, error)
	EditDeadLetter(ctx context.Context, id int64, seen, payload []byte, audit store.Audit) error
	MoveLetters(ctx context.Context, ids []int64, from, to store.LetterState, audit store.Audit) (int, error)
	Audits(ctx context.Context, f store.AuditFilter) ([]store.Audit, error)
	AddAudits(ctx context.Context, audits []store.Audit) error
}
