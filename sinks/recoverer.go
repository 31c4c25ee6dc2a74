package sinks

import (
	"context"

	"github.com/seed-86dfc502/weir/change"
)

// Takeover is a partition of the changes log that deliver took over, with the state saved
// beside the service's position there.
type Takeover struct {
	Partition int32
	// Below is that position: deliver sends no change whose position is below it.
	Below change.Version
	// Bookmark is the predecessor's last Bookmark, "" when none was saved.
	Bookmark string
}

// Recoverer is a sink that can read its target, so that a predecessor's change has no
// second effect. Deliver calls Resume after each
// takeover before the first Write with a change of these partitions
// (Change.Partition), saves Bookmark before that Write where none was saved yet, and
// later on together with the positions. All calls come from the goroutine of Write.
type Recoverer interface {
	Sink
	// Resume fences other writers of the partitions, and reads which changes at and above their
	// positions are in the target. Write skips them. Errors are as from Write. It may be
	// called again.
	Resume(ctx context.Context, takeovers []Takeover) error
	// Bookmark returns where reading the target has to begin to find the changes of a
	// resumed partition whose positions are above the position above. It is saved with a
	// position only if that is higher, else the last bookmark stays.
	Bookmark(partition int32) (bookmark string, above change.Version)
	// Found returns how many changes Write skipped since New because they were in the
	// target.
	Found() uint64
}
