package golden

import (
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/store"
)

// guard counts the changes of one service in one case. The stores' own judgement decides about each.
type guard struct {
	limit    *config.Guard
	state    store.GuardState
	counted  map[store.GuardKind]map[string]time.Time
	entities int64
	hold     *store.Pause
}

func newGuard(limit *config.Guard) *guard {
	return &guard{limit: limit, counted: map[store.GuardKind]map[string]time.Time{store.GuardRetract: {}, store.GuardUpdate: {}}}
}

// holds reports whether a change is queued: the guard holds the service, or this change begins a hold.
func (g *guard) holds(c *change.Change, at time.Time) bool {
	kind := deliver.GuardKind(c)
	share := map[store.GuardKind]config.Percent{store.GuardRetract: g.limit.Retract, store.GuardUpdate: g.limit.Update}[kind]
	if g.hold == nil && share > 0 {
		g.judge(&store.Admission{
			Service: c.Service, Kind: kind, Share: float64(share), Min: int64(g.limit.Min), Window: g.limit.Window.D(),
			Entities: g.entities, Now: at, Changes: []store.GuardedChange{{Entity: c.Entity, Position: c.Version}},
		})
	}
	if g.hold != nil {
		return true
	}
	g.entities += int64(c.Effect)
	return false
}

func (g *guard) judge(a *store.Admission) {
	n := store.GuardCounts{Known: map[string]time.Time{}, Slots: map[time.Time]int64{}, Retracted: int64(len(g.counted[store.GuardRetract]))}
	for _, counted := range g.counted {
		for entity, at := range counted {
			if a.Now.Sub(at) >= a.Window {
				delete(counted, entity)
			}
		}
	}
	for entity, at := range g.counted[a.Kind] {
		at = a.Slot(&store.GuardedChange{At: at})
		n.Known[entity] = at
		n.Slots[at]++
	}
	answers, counted, limit := g.state.Judge(a, &n)
	if answers[0] == store.Held {
		g.hold = g.state.Hold(a, counted, limit)
		return
	}
	g.counted[a.Kind][a.Changes[0].Entity] = a.Now
}
