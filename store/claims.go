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
	for i := range intents {
		if !claimable(intents[i].Key, maxClaimKey) {
			return WithClass(errors.New("the key of a claim is empty, too long, or no legible text"), Poison)
		}
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
	Answered    bool
	Response    Response // when Answered
	// Earlier says that the row is Answered and was made under an earlier generation of
	// the inbox than the newest; Lost, that its claim was not decided either, so that its
	// event may be lost with the inbox.
	Earlier, Lost bool
}

// Expired reports whether the row is over its time, so that its key is new.
func (r *ClaimRow) Expired(now time.Time, keep time.Duration) bool {
	return !r.Made.After(now.Add(-keep))
}

// Claimed is the result of a claim of the row's key with a fingerprint.
func (r *ClaimRow) Claimed(fingerprint [32]byte) ClaimResult {
	c := ClaimResult{State: ClaimOpen, ID: r.ID, Fingerprint: r.Fingerprint}
	switch {
	case r.Fingerprint != fingerprint:
		c.State = ClaimConflict
	case r.Answered && !r.Lost:
		c.State, c.Response = ClaimDone, r.Response
	}
	return c
}
