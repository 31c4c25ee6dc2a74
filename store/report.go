package store

import (
	"context"
	"time"
)

// Report is a bounded summary of what processes saw, such as which fields
// cause suppressed events. All processes add to the same one.
type Report struct {
	Kind    string
	Name    string
	Body    []byte // opaque to the store
	Updated time.Time
}

// Reports keeps them. Nothing that decides reads them.
type Reports interface {
	// UpdateReport replaces the body of a report by what f makes of it, which is
	// nil for a new one; no other process writes it meanwhile. f must be
	// quick, must not call the store, and may be called again when the store
	// repeats a transaction that certainly did not commit. An error of f ends it
	// and is in the chain of the one returned. Neither kind nor name is empty.
	UpdateReport(ctx context.Context, kind, name string, f func(body []byte) ([]byte, error)) error
	// ListReports returns all reports of a kind in the order of their names.
	ListReports(ctx context.Context, kind string) ([]Report, error)
	// PruneReports removes the reports of a kind that were last updated before
	// the given time, and returns how many.
	PruneReports(ctx context.Context, kind string, before time.Time) (int, error)
}
