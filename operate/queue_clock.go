package operate

import (
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// QueueClock knows since when changes are queued: it keeps the times at which the decided
// versions of each partition were first seen. The zero value is ready; used by one goroutine.
type QueueClock struct{ seen map[int32][]sighting }

// sighting is the first time at which changes below a version were seen.
type sighting struct {
	at   time.Time
	upTo change.Version
}

// maxSightings bounds the sightings of a partition. Beyond it the older ones are merged by two.
const maxSightings = 128

// Note records the decided versions of a snapshot.
func (c *QueueClock) Note(r *DeliveryProgress, now time.Time) {
	if c.seen == nil {
		c.seen = map[int32][]sighting{}
	}
	for partition, mark := range r.Marks {
		all := c.seen[partition]
		for len(all) > 0 && all[len(all)-1].upTo > mark.LastTo { // a restored store
			all = all[:len(all)-1]
		}
		if len(all) == maxSightings {
			for i := range maxSightings / 4 {
				all[i] = sighting{all[2*i].at, all[2*i+1].upTo}
			}
			all = slices.Delete(all, maxSightings/4, maxSightings/2)
		}
		if len(all) == 0 || all[len(all)-1].upTo < mark.LastTo {
			all = append(all, sighting{now, mark.LastTo})
		}
		c.seen[partition] = all
	}
}

// Oldest returns when the oldest queued change of a service was first seen, or an earlier
// time: a change is never younger than this says, unless it was queued before the first
// snapshot. Zero if none is queued.
func (c *QueueClock) Oldest(r *DeliveryProgress, service int32) (oldest time.Time) {
	for partition := range r.Marks {
		if r.Waiting(partition, service) == 0 {
			continue
		}
		at := r.Position(partition, service)
		i := slices.IndexFunc(c.seen[partition], func(s sighting) bool { return s.upTo > at })
		if i >= 0 && (oldest.IsZero() || c.seen[partition][i].at.Before(oldest)) {
			oldest = c.seen[partition][i].at
		}
	}
	return oldest
}
