package sinks

import (
	"context"

	"github.com/seed-86dfc502/weir/change"
)

// TargetRow is an entity in a target: the row with the newest version.
type TargetRow struct {
	Entity  string
	Version change.Version
	Deleted bool // it is a retraction
	// Doc is the document as the target returns it, JSON, or nil for a retraction, and where the
	// target spreads it over columns. Not to be kept after a visit.
	Doc []byte
	// Respelled: the target keeps values, so Doc may spell numbers in another
	// way than they were written (jsonb makes 100 of 1e2).
	Respelled bool
}

// Expected is a document that a target should hold at a version.
type Expected struct {
	Entity  string
	Version change.Version
	Doc     []byte
	// Content, if given, returns the compared content of a document, or of a part of it at its
	// place. Values with equal content are equal.
	Content func(doc []byte) (string, error)
}

// Scannable is a sink whose target can be read back.
type Scannable interface {
	Sink
	// Scan visits the entities of the service in the target: at most limit
	// after afterEntity, ascending by bytes. Fewer than limit visits mean that
	// the end was reached. An error of visit ends the scan and is returned as it
	// is. It may run beside Write; visit should be quick, since a connection is
	// held meanwhile.
	Scan(ctx context.Context, afterEntity string, limit int, visit func(TargetRow) error) error
	// Compare converts documents as Write does and compares each column with the
	// target's, for rows whose Doc Scan leaves out or respells. Expected entities ascend
	// by bytes. The result has the differing columns of each compared entity, none where
	// all values are equal. Entities with no row of that version are left out, also those
	// whose document the columns no longer take. It runs neither beside Open nor Write.
	Compare(ctx context.Context, expected []Expected) (map[string][]string, error)
	// DeleteStatement returns a statement for an operator to remove the entity from the target by
	// hand.
	DeleteStatement(entity string) string
}

// Versioned is a sink whose target turns away versions that are not above its own.
type Versioned interface {
	// Highest returns the highest version that the target holds of the service, 0 when
	// it holds nothing of it. The sink is open.
	Highest(ctx context.Context) (change.Version, error)
}
