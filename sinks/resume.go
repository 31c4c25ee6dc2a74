package sinks

import (
	"context"

	"github.com/seed-86dfc502/weir/change"
)

// Claim is a partition of the changes log that deliver took over, and what was saved
// with the service's position there.
type Claim struct {
	Partition int32
	// Below is that position: no change whose position is below it comes.
	Below change.Version
	// Mark is what the predecessor's Mark returned, "" when nothing was saved.
	Mark string
}

// Resumer is a sink that can find out what is in its target, so that a change that a
// predecessor wrote has no second effect. Deliver calls Resume after each
// take-over before the first Write with a change of these partitions
// (Change.Partition), saves Mark before that Write where nothing was saved yet, and
// later on together with the positions. All of it comes from the goroutine of Write.
type Resumer interface {
	Sink
	// Resume fences other writers of the partitions, and reads which changes at and above
	// their positions are in the target. Write skips those. Errors are like those of
	// Write; it may be called again.
	Resume(ctx context.Context, claims []Claim) error
	// Mark returns where reading the target has to begin to find the changes of a resumed
	// partition whose positions are above the position above. It is saved with a position
	// only if that is higher, else the last mark stays.
	Mark(partition int32) (mark string, above change.Version)
	// Found returns how many changes Write skipped since New because they were in the
	// target.
	Found() uint64
}
