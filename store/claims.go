package store

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// What follows is shared by the implementations of Ledger.

// maxClaimKey bounds a key, in bytes: with tenant and month it must fit in an
// entry of an index (a third of PostgreSQL's page).
const (
	maxClaimKey    = 1300
	maxClaimTenant = 256
)

// CheckIntents refuses what BeginClaims cannot take.
func CheckIntents(tenant string, intents []ClaimRequest) error {
	if err := CheckTenant(tenant); err != nil {
		return err
	}
	keys := make(map[string]bool, len(intents))
	for i := range intents {
		key := intents[i].Key
		if !claimable(key, maxClaimKey) {
			return WithClass(errors.New("the key of a claim is empty, too long, or no legible text"), Poison)
		}
		if keys[key] {
			return WithClass(errors.New("a key is claimed twice in one call"), Fatal)
		}
		keys[key] = true
	}
	return nil
}

// CheckTenant refuses a tenant that the ledger cannot keep.
func CheckTenant(tenant string) error {
	if !claimable(tenant, maxClaimTenant) {
		return WithClass(errors.New("the tenant of a claim is empty, too long, or no legible text"), Poison)
	}
	return nil
}

func claimable(text string, most int) bool {
	return text != "" && len(text) <= most && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// SortDecided returns decided claims in the order of their ids, in which every
// decision writes them, and whether none is in it twice, nor a key.
func SortDecided(claims []Decided) (sorted []Decided, distinct bool) {
	sorted = slices.SortedFunc(slices.Values(claims), func(a, b Decided) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	keys := make(map[KeyDigest]bool, len(sorted))
	for i, c := range sorted {
		if i > 0 && c.ID == sorted[i-1].ID || keys[c.Key] {
			return sorted, false
		}
		if c.Key != (KeyDigest{}) {
			keys[c.Key] = true
		}
	}
	return sorted, true
}

// PreviousHolders returns the claims that had the keys of claims, in the order of these.
func PreviousHolders(claims []Decided, had map[KeyDigest]Decided) (previous []Decided) {
	for _, c := range claims {
		if r, ok := had[c.Key]; ok {
			previous = append(previous, r)
		}
	}
	return previous
}

// MonthOf is the first moment of t's month in UTC.
func MonthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// ClaimRow is a claim as it is stored.
type ClaimRow struct {
	ID          ClaimID
	Fingerprint [32]byte
	Made        time.Time
	LeasedUntil time.Time
	Answered    bool
	Response    Response // when Answered
	// Earlier says that the row is Answered and its last attempt began under an
	// earlier generation of the inbox than the newest; Lost, that its claim was not
	// decided either, so that its event may be lost with the inbox.
	Earlier, Lost bool
}

// Expired reports whether the row is over its time, so that its key is new.
func (r *ClaimRow) Expired(now time.Time, keep time.Duration) bool {
	return !r.Made.After(now.Add(-keep))
}

// Claimed is the result of a claim of the row at now, with a fingerprint.
// ClaimResumed means that its lease is over and may be taken.
func (r *ClaimRow) Claimed(fingerprint [32]byte, now time.Time) ClaimResult {
	c := ClaimResult{State: ClaimResumed, ID: r.ID, Fingerprint: r.Fingerprint}
	switch {
	case r.Fingerprint != fingerprint:
		c.State = ClaimConflict
	case r.Lost: // another attempt may begin at once
	case r.Answered:
		c.State, c.Response = ClaimDone, r.Response
	case r.LeasedUntil.After(now):
		c.State, c.Wait = ClaimBusy, r.LeasedUntil.Sub(now)
	}
	return c
}

// ClaimAll claims the keys of items, in their order, with begin, which takes
// no key twice. Of items with one key the first does; found takes the result
// under its key. The others have the results of later claims: follows reports whether one
// has the content of the first, which the key now has; if the key had other content
// before, found says so, or has the claim of that content.
func ClaimAll[T any](items []T, intent func(T) ClaimRequest, begin func([]ClaimRequest) ([]ClaimResult, error), found func(T, ClaimResult), follows func(item, first T, same bool)) error {
	for pending := items; len(pending) > 0; {
		place := map[string]int{} // of the first with a key
		var asked, others []T
		var intents []ClaimRequest
		for _, item := range pending {
			i := intent(item)
			if _, ok := place[i.Key]; ok {
				others = append(others, item)
				continue
			}
			place[i.Key] = len(asked)
			asked, intents = append(asked, item), append(intents, i)
		}
		answers, err := begin(intents)
		if err != nil {
			return err
		}
		for n, item := range asked {
			found(item, answers[n])
		}
		pending = nil
		for _, item := range others {
			i := intent(item)
			n := place[i.Key]
			switch {
			case answers[n].State != ClaimConflict:
				follows(item, asked[n], i.Fingerprint == intents[n].Fingerprint)
			case i.Fingerprint == answers[n].Fingerprint:
				pending = append(pending, item) // its content is what the key stands for
			default:
				found(item, answers[n])
			}
		}
	}
	return nil
}
