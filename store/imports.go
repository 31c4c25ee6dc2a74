package store

import (
	"context"
	"time"
)

// ImportState is how far an import is.
type ImportState string

// The states of an import.
const (
	ImportReceiving ImportState = "receiving" // its file is being received
	ImportQueued    ImportState = "queued"    // complete; a worker may take it
	ImportRunning   ImportState = "running"   // a worker has, or had, its lease
	ImportDone      ImportState = "done"
	ImportCancelled ImportState = "cancelled"
	ImportFailed    ImportState = "failed" // for a reason other than a row
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

// Import is the job that takes one file into a source.
type Import struct {
	ID          ClaimID // a UUIDv7, assigned by the store
	Tenant      string
	Source      string
	Format      string // jsonl or csv
	Options     []byte // JSON object of package imports
	Name        string // of the file, for people
	Fingerprint []byte // SHA-256 of the file; empty while it is received
	Bytes       int64  // of the file, received
	Chunks      int64  // received
	Next        int64  // the first chunk that is not processed yet
	Row         int64  // rows behind Next
	Cursor      []byte // of package imports, between two chunks
	Counts      ImportCounts
	State       ImportState
	Failure     string // of ImportFailed, one sentence without payload
	Actor       string
	Created     time.Time
	Updated     time.Time
	Attempt     int64 // leases granted so far
}

// ImportRow is the result of a row that was not simply accepted.
type ImportRow struct {
	Row    int64  `json:"row"`              // from 1, headers not counted
	Line   int64  `json:"line"`             // in the file, from 1
	Status string `json:"status"`           // duplicate, invalid, conflicting
	Reason string `json:"reason,omitempty"` // no payload
}

// ImportStep is one processed chunk.
type ImportStep struct {
	ID      ClaimID
	Attempt int64 // of the worker's lease
	Next    int64 // the chunk after it
	Row     int64
	Cursor  []byte
	Counts  ImportCounts // in all
	Rows    []ImportRow  // of this chunk
	State   ImportState  // ImportRunning, or how it ended
	Failure string
	Lease   time.Duration // from now on
}

// StalledAfter is when a file that receives no more chunks counts as abandoned: its
// process died. The next chunk of a living one comes within about a minute.
const StalledAfter = 10 * time.Minute

// Imports keeps the files of imports, in chunks, and their progress. A
// tenant sees its own.
type Imports interface {
	// CreateImport makes one in state receiving. ErrTooMany if the tenant has most
	// that have not ended already (0: no matter how many); those whose file has
	// received nothing for StalledAfter do not count.
	CreateImport(ctx context.Context, i Import, most int) (Import, error)
	// AddImportChunk appends a chunk to one that is being received; n is its
	// number, from 0, and the same number again is a no-op, so a repeated call
	// does no harm. It counts size bytes of the file. ErrFenced when it is not
	// receiving, or n skips one; ErrTooMany when the files of its tenant that have
	// not ended would hold more than most bytes (0: no matter how many). Files that
	// come in at the same time may pass the bound by a chunk each.
	AddImportChunk(ctx context.Context, id ClaimID, n, size int64, chunk []byte, most int64) error
	// SealImport completes the file of i, which CreateImport returned. If the tenant
	// has another import of the same fingerprint, source, format and options that
	// was not cancelled and did not fail, this one is removed and that one is returned;
	// otherwise it is queued. One that a worker began under an earlier generation of
	// the inbox is another: what it took in may be lost.
	// ErrFenced when it is not receiving; a repetition with this fingerprint, of one
	// that was sealed or removed, returns what the first returned.
	SealImport(ctx context.Context, i Import, fingerprint []byte) (Import, error)
	// TakeImport grants a new lease on one of the imports that are queued, or running
	// under an expired lease, and returns it; ErrNotFound. Tenants take turns:
	// it is of the tenant that has been served least recently, and of that
	// tenant's the one that has waited longest. What other workers hold is skipped.
	// Of what a tenant imports into a source one file at a time is worked on, in the
	// order of sealing.
	TakeImport(ctx context.Context, lease time.Duration) (Import, error)
	// ImportChunk reads one; ErrNotFound.
	ImportChunk(ctx context.Context, id ClaimID, n int64) ([]byte, error)
	// StepImport records a chunk's results and prolongs the lease, in one
	// transaction; ErrFenced when the attempt is not the latest, the import is at
	// its end, or farther than Next. Chunks before Next go, at its end all. The
	// same step again does no harm; one that moves nothing only prolongs, or returns
	// the lease.
	StepImport(ctx context.Context, s ImportStep) error
	// CancelImport ends one that is not at its end and returns it as it is then.
	CancelImport(ctx context.Context, tenant string, id ClaimID) (Import, error)
	// Import returns one; ErrNotFound, also for one of another tenant.
	Import(ctx context.Context, tenant string, id ClaimID) (Import, error)
	// ListImports pages through a tenant's, the latest first; before may be zero.
	ListImports(ctx context.Context, tenant string, before ClaimID, limit int) ([]Import, error)
	// ImportRows pages through results in ascending row.
	ImportRows(ctx context.Context, tenant string, id ClaimID, after int64, limit int) ([]ImportRow, error)
	// PruneImports removes those that ended before ended, and those whose file
	// stopped coming in before stalled, with their results, and returns how many. It
	// also removes chunks that a process left behind that died at an end.
	PruneImports(ctx context.Context, ended, stalled time.Time) (int, error)
	// OpenImports counts those of all tenants that are queued or running.
	OpenImports(ctx context.Context) (int64, error)
}
