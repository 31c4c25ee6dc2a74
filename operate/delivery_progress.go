package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// DeliveryProgress is a snapshot of the progress of all services' deliveries, in every
// process. It is read-only.
type DeliveryProgress struct {
	// Marks are the decided offsets, by partition of the inbox.
	Marks     map[int32]store.Mark
	positions map[int32][]store.ServicePosition // by partition
	layout    transport.Layout
}

// ProgressStore is the part of a store that ReadProgress reads.
type ProgressStore interface {
	Marks(ctx context.Context) (map[int32]store.Mark, error)
	AllProgress(ctx context.Context) ([]store.Progress, error)
	InboxStore
}

// InboxStore is the part of a store that ReadLayout reads.
type InboxStore interface {
	Inboxes(ctx context.Context) ([]store.Inbox, error)
}

// ReadLayout reads how many partitions the generations of the inbox have.
func ReadLayout(ctx context.Context, s InboxStore) (transport.Layout, error) {
	inboxes, err := s.Inboxes(ctx)
	layout := make(transport.Layout, len(inboxes))
	for _, i := range inboxes {
		layout[i.Generation] = i.Partitions
	}
	return layout, err
}

// ReadProgress takes a snapshot. Changes below a position in it took effect before it returns.
func ReadProgress(ctx context.Context, s ProgressStore) (*DeliveryProgress, error) {
	marks, err := s.Marks(ctx) // first, since a change is decided before it is delivered
	if err != nil {
		return nil, err
	}
	rows, err := s.AllProgress(ctx)
	if err != nil {
		return nil, err
	}
	layout, err := ReadLayout(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &DeliveryProgress{Marks: marks, layout: layout, positions: make(map[int32][]store.ServicePosition, len(rows))}
	for i := range rows {
		r.positions[rows[i].Partition] = rows[i].Positions
	}
	return r, nil
}

// Partition returns the partition in which a version of an entity was decided: that
// of its generation of the inbox, which may have had another number of partitions.
func (r *DeliveryProgress) Partition(entity string, version change.Version) int32 {
	return r.layout.PartitionOf([]byte(entity), version.Generation())
}

// Received returns the version below which a service received all changes of an entity, for
// an entity whose newest change has a version. Changes of a later generation, perhaps in
// another partition, are not below. While the service has changes of an earlier generation
// left in another partition that had the entity, nothing is.
func (r *DeliveryProgress) Received(entity string, version change.Version, service int32) change.Version {
	partition := r.Partition(entity, version)
	for generation := range r.layout {
		earlier := r.layout.PartitionOf([]byte(entity), generation)
		if generation < version.Generation() && earlier != partition && r.Waiting(earlier, service) > 0 &&
			r.Position(earlier, service) < change.NewVersion(generation+1, 0) {
			return 0
		}
	}
	return min(r.Position(partition, service), change.NewVersion(version.Generation()+1, 0))
}

// Position returns the position of a service in a partition: every change of it with
// a lower version took effect, is parked or a dead letter, or needed no delivery. While lost
// changes are repaired it is the first of them, although delivery itself has passed them.
func (r *DeliveryProgress) Position(partition, service int32) change.Version {
	positions := r.positions[partition]
	i, found := slices.BinarySearchFunc(positions, service, func(p store.ServicePosition, service int32) int { return int(p.Service) - int(service) })
	if found {
		return core.FirstLost(positions[i].Repair, positions[i].Version)
	}
	// A new service has no changes below the positions saved before it.
	return store.Top(positions)
}

// Repairs returns a status line for each service, by number, whose lost changes are decided
// again.
func (r *DeliveryProgress) Repairs(names map[int32]string) (all []Item) {
	partitions := map[int32]int{}
	for _, positions := range r.positions {
		for _, p := range positions {
			if p.Repair != "" {
				partitions[p.Service]++
			}
		}
	}
	for number, n := range partitions {
		if name := names[number]; name != "" {
			all = append(all, Item{
				What: "lost changes of " + name, Level: LevelDegraded,
				Why: fmt.Sprintf("changes left the log before their delivery, in %d partitions; their entities are decided again", n),
				Do:  "nothing: it ends by itself, as fast as the service delivers; a log sink keeps a gap (weir reconcile compares other targets)",
			})
		}
	}
	slices.SortFunc(all, compareItems)
	return all
}

// Waiting returns an upper bound of the queued changes of a service in a partition; 0 only
// when none is queued.
func (r *DeliveryProgress) Waiting(partition, service int32) int64 {
	at, last := r.Position(partition, service), r.Marks[partition].LastTo
	switch {
	case at >= last:
		return 0
	case at.Generation() == last.Generation():
		return last.Offset() - at.Offset()
	}
	return last.Offset()
}

// Pending is the sum of Waiting over all partitions.
func (r *DeliveryProgress) Pending(service int32) (n int64) {
	for partition := range r.Marks {
		n += r.Waiting(partition, service)
	}
	return n
}
