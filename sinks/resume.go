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

// Resumer is a sink that finds out what stands in its target, so that a change that
// a predecessor brought there has no second effect. Deliver calls Resume after each
// take-over before the first Write with a change of these partitions
// (Change.Partition), saves Mark before that Write where nothing was saved yet, and
// later on together with the positions. All of it comes from the goroutine of Write.
type Resumer interface {
	Sink
	// Resume makes this process the only one that writes changes of the partitions,
	// and looks what is there of them at and above their positions. Write leaves that
	// out. Errors are like those of Write; it may be called again.
	Resume(ctx context.Context, claims []Claim) error
	// Mark returns from where on the target has to be looked through for changes of a
	// resumed partition whose positions are above a position. It is saved with a position only
	// if that is above the position, else the mark before stays.
	Mark(partition int32) (mark string, above change.Version)
	// Found returns how many changes Write left out because they were there, since New.
	Found() uint64
}
