package store

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Attempt is the outcome of one try to deliver one change.
type Attempt struct {
	Service int32
	Entity  string
	At      time.Time // its begin, by the clock of the delivering process
	Version change.Version
	Outcome string // a word of package deliver
	// Status is the target's answer, by its protocol's number; 0 without one.
	Status int
	// Answer is the begin of the target's answer, any bytes, some 200 of them; without a
	// status, the reason of its absence.
	Answer []byte
	Took   time.Duration // kept in milliseconds
}

// AttemptFilter selects attempts; zero fields select all.
type AttemptFilter struct {
	Service      int32
	Entity       string
	Since, Until time.Time // of At; Until excludes
	Limit        int       // 0: 100
}

// AttemptBound limits the attempts kept of a service.
type AttemptBound struct {
	Keep time.Duration // 0 keeps none
	// Max is how many are kept at most; the oldest are deleted first.
	Max int
}

// Attempts is the delivery history: attempts, and the answers of the targets. It is for display
// only: no decision and no delivery reads it. Attempts expire by their age alone, also those of
// an entity that was purged.
type Attempts interface {
	// AddAttempts writes them, all or none. A call of unknown outcome must not be repeated:
	// attempts have no identity.
	AddAttempts(ctx context.Context, attempts []Attempt) error
	// ListAttempts returns the newest selected attempts, the newest first.
	ListAttempts(ctx context.Context, f AttemptFilter) ([]Attempt, error)
	// RetainAttempts deletes attempts beyond the bounds of their services, or beyond others for
	// services without a bound, in short transactions, and returns how many. Any process may
	// call it at any time. After an error the next call continues.
	RetainAttempts(ctx context.Context, bounds map[int32]AttemptBound, others AttemptBound) (int64, error)
}
