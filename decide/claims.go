package decide

import (
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// claims are which claims of a batch had their effect: before it, as the store
// says, or by a record of it. An attempt of the API that was abandoned, or whose
// process died, may have put its event into the inbox, and the next attempt puts it
// there again; the first record that is decided, with any outcome, is the claim's
// effect. A restored ledger makes another claim for a key that it forgot: then the
// first record of the key is the effect of both. nil: the batch has no claims.
type claims struct {
	before map[store.ClaimID]change.Version
	uses   map[store.KeyDigest]store.Decided // who had which key before
	now    map[store.ClaimID]struct{}
	mine   map[store.KeyDigest]int // in wrote
	wrote  []store.Decided
}

// claimsOf returns the claims of a batch and their keys; nil when no record has one.
func claimsOf(batch []*record) (ids []store.ClaimID, keys []store.KeyDigest) {
	for _, r := range batch {
		if r.claimID != (store.ClaimID{}) {
			ids = append(ids, r.claimID)
		}
		if r.use.Key != (store.KeyDigest{}) {
			keys = append(keys, r.use.Key)
		}
	}
	return ids, keys
}

// newClaims are those of a batch with n claims.
func newClaims(n int, loaded store.Loaded) *claims {
	if n == 0 {
		return nil
	}
	return &claims{before: loaded.Decided, uses: loaded.Uses, now: make(map[store.ClaimID]struct{}, n), mine: make(map[store.KeyDigest]int, n)}
}

// used records the use of a key that the record's claim was made for.
func (r *record) used(u *change.Use) error {
	if u == nil {
		return nil
	}
	if len(u.Key) != len(r.use.Key) || len(u.Content) != len(r.use.Content) || u.Keep < 0 {
		return fmt.Errorf("%w: the use of a key", change.ErrMalformed)
	}
	copy(r.use.Key[:], u.Key)
	copy(r.use.Content[:], u.Content)
	r.keep = time.Duration(u.Keep) * time.Millisecond
	return nil
}

// effect relates a record to its claim.
type effect int

const (
	first       effect = iota // the claim's effect, or it has no claim
	repeated                  // the claim, or another one for its key, had its effect
	conflicting               // another claim for its key had an effect with other content
)

// of returns and notes what r is to its claim.
func (c *claims) of(r *record) effect {
	if r.claimID == (store.ClaimID{}) {
		return first
	}
	_, before := c.before[r.claimID]
	if _, now := c.now[r.claimID]; before || now {
		return repeated
	}
	c.now[r.claimID] = struct{}{}
	d := store.Decided{ID: r.claimID, Version: r.version, Use: r.use}
	found := first
	if has, ok := c.has(r.use.Key); ok {
		gap := r.claimID.Made().Sub(has.ID.Made())
		switch {
		case gap.Abs() < r.keep && has.Content == r.use.Content:
			found, d.Use = repeated, store.Use{}
		case gap.Abs() < r.keep:
			found, d.Use = conflicting, store.Use{}
		case gap < 0: // an earlier use, which is late
			d.Use = store.Use{}
		default:
			if i, ok := c.mine[r.use.Key]; ok {
				c.wrote[i].Use = store.Use{}
			}
		}
	}
	if d.Key != (store.KeyDigest{}) {
		c.mine[d.Key] = len(c.wrote)
	}
	c.wrote = append(c.wrote, d)
	return found
}

// has returns the claim that has a key.
func (c *claims) has(key store.KeyDigest) (store.Decided, bool) {
	if i, ok := c.mine[key]; ok {
		return c.wrote[i], true
	}
	d, ok := c.uses[key]
	return d, ok
}

// effects are the claims that have their effect by the batch.
func (c *claims) effects() []store.Decided {
	if c == nil {
		return nil
	}
	return c.wrote
}
