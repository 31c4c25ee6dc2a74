package dam

import (
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// claims are which claims of a batch had their effect: before it, as the store
// says, or by a record of it. An attempt of the front door that was given up, or
// that its process did not outlive, may have put its event into the inbox, and
// the next one puts it there again; the first record that is decided, whatever
// becomes of it, is the claim's effect. A nil one is that of a batch without
// claims.
type claims struct {
	before map[store.ClaimID]change.Version
	now    map[store.ClaimID]struct{}
	wrote  []store.Decided
}

// claimsOf gives the claims of a batch; nil when no record has one.
func claimsOf(batch []*record) []store.ClaimID {
	var ids []store.ClaimID
	for _, r := range batch {
		if r.once != (store.ClaimID{}) {
			ids = append(ids, r.once)
		}
	}
	return ids
}

func newClaims(of []store.ClaimID, before map[store.ClaimID]change.Version) *claims {
	if len(of) == 0 {
		return nil
	}
	return &claims{before: before, now: make(map[store.ClaimID]struct{}, len(of))}
}

// had tells whether the claim of r had its effect. If not, r is its effect.
func (c *claims) had(r *record) bool {
	if _, ok := c.before[r.once]; ok {
		return true
	}
	if _, ok := c.now[r.once]; ok {
		return true
	}
	c.now[r.once] = struct{}{}
	c.wrote = append(c.wrote, store.Decided{ID: r.once, Version: r.version})
	return false
}

// effects are the claims that have their effect by the batch.
func (c *claims) effects() []store.Decided {
	if c == nil {
		return nil
	}
	return c.wrote
}
