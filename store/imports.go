package store

import (
	"context"
	"fmt"
	"time"
)

// ImportState is the state of an import.
type ImportState string

// The states of an import.
const (
	ImportIncomplete ImportState = "incomplete" // the same file continues it
	ImportDone       ImportState = "done"
)

// ImportCounts counts rows by outcome.
type ImportCounts struct {
	Accepted  int64
	Duplicate int64 // event id known, with the same content
	Refused   int64 // a dead letter
}

// Import is a file that is loaded into a source, and its options. The file itself is not stored.
type Import struct {
	ID      string // derived from all that identifies the import; not empty
	Tenant  string
	Source  string
	Format  string // jsonl or csv
	Options []byte // JSON object of package imports
	File    string // the hash of the content
	Name    string // of the file, for people
	Actor   string
	Created time.Time
	Updated time.Time
	ImportPosition
}

// ImportPosition is the state of an import up to a row.
type ImportPosition struct {
	Bytes  int64 // of the file, up to and including Row
	Row    int64 // every row up to this one has its result
	Counts ImportCounts
	State  ImportState
}

// ImportLetterKey returns the DedupKey of the dead letter of a refused row; keys of an import
// order by row.
func ImportLetterKey(id string, row int64) string { return fmt.Sprintf("import/%s/%019d", id, row) }

// Imports keeps imports and their positions. A tenant sees its own.
type Imports interface {
	// BeginImport creates the import, or returns it. One of an earlier generation of the inbox,
	// where its rows may be lost, begins again at its first row, in any state.
	BeginImport(ctx context.Context, i Import) (Import, error)
	// StepImport moves i from its position to another one and adds the dead letters of rows
	// between them, in one transaction. ErrFenced if the import has another position, or is done.
	StepImport(ctx context.Context, i Import, to ImportPosition, letters []DeadLetter) error
	// Import returns one; ErrNotFound, also for one of another tenant.
	Import(ctx context.Context, tenant, id string) (Import, error)
	// ListImports pages through a tenant's, the latest first; before is an id or empty.
	ListImports(ctx context.Context, tenant, before string, limit int) ([]Import, error)
	// ImportLetters pages through the dead letters of refused rows by ascending row, without
	// Payload and Original; after is a DedupKey or empty.
	ImportLetters(ctx context.Context, id, after string, limit int) ([]DeadLetter, error)
	// PruneImports removes those without progress since before, in any state, and returns
	// how many.
	PruneImports(ctx context.Context, before time.Time) (int, error)
}
