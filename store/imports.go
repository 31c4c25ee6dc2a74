package store

import (
	"context"
	"time"
)

// ImportState is the state of an import.
type ImportState string

// The states of an import.
const (
	ImportIncomplete ImportState = "incomplete" // a request streams its file, or the file must be posted again
	ImportDone       ImportState = "done"
	ImportCancelled  ImportState = "cancelled" // until its file is posted again
	ImportFailed     ImportState = "failed"    // as a whole; begins anew when its file is posted again
)

// ImportCounts counts rows by outcome.
type ImportCounts struct {
	Accepted    int64
	Duplicate   int64 // event id known, with the same content
	Invalid     int64
	Conflicting int64 // event id known, with different content
}

// Rows is their sum.
func (c ImportCounts) Rows() int64 { return c.Accepted + c.Duplicate + c.Invalid + c.Conflicting }

// Import is the job of one file and its options. The file itself is not stored.
type Import struct {
	ID      string // derived from all that identifies the job; not empty
	Tenant  string
	Source  string
	Format  string // jsonl or csv
	Options []byte // JSON object of package imports
	File    string // the identity of the content: a hash, or an id of the client
	Name    string // of the file, for people
	Actor   string
	Created time.Time
	Updated time.Time
	Attempt int64 // fences earlier requests with the same file
	ImportPosition
}

// ImportPosition is the state of an import up to a row.
type ImportPosition struct {
	Bytes   int64  // of the file, up to and including Row
	Row     int64  // every row up to this one has its result
	Cursor  []byte // of package imports
	Counts  ImportCounts
	State   ImportState
	Failure string // of ImportFailed, one sentence without payload
}

// ImportRow is the result of a row that was not simply accepted.
type ImportRow struct {
	Row    int64  `json:"row"`              // from 1, headers not counted
	Line   int64  `json:"line"`             // in the file, from 1
	Status string `json:"status"`           // duplicate, invalid, conflicting
	Reason string `json:"reason,omitempty"` // no payload
}

// Imports keeps jobs and results of rows. A tenant sees its own.
type Imports interface {
	// BeginImport creates the job, or takes it over from an earlier request, which is
	// fenced. A job that failed, or that began under an earlier generation of the inbox,
	// where its rows may be lost, begins anew; one that is done is returned as it is.
	// ErrTooMany if the tenant has most other incomplete ones (0: no bound).
	BeginImport(ctx context.Context, i Import, most int) (Import, error)
	// StepImport moves an incomplete import to a position and adds results of rows before
	// it, in one transaction. Repeating it is a no-op. ErrFenced when i.Attempt is not the
	// latest, or the import is not incomplete or beyond the position.
	StepImport(ctx context.Context, i Import, to ImportPosition, rows []ImportRow) error
	// CancelImport cancels one that is incomplete and returns it; ErrNotFound.
	CancelImport(ctx context.Context, tenant, id string) (Import, error)
	// Import returns one; ErrNotFound, also for one of another tenant.
	Import(ctx context.Context, tenant, id string) (Import, error)
	// ListImports pages through a tenant's, the latest first; before is an id or empty.
	ListImports(ctx context.Context, tenant, before string, limit int) ([]Import, error)
	// ImportRows pages through results in ascending row.
	ImportRows(ctx context.Context, tenant, id string, after int64, limit int) ([]ImportRow, error)
	// PruneImports removes those without progress since before, in any state, with their
	// results, and returns how many.
	PruneImports(ctx context.Context, before time.Time) (int, error)
}
