package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/change"
)

// ClaimID names one claim: a UUIDv7 (RFC 9562) in its 16 bytes, so that its
// time is when it was made. An event of the inbox that came in under a claim
// carries its id, and decide lets each claim have its effect once.
type ClaimID [16]byte

// String returns the text form of a UUID (RFC 9562, section 4).
func (id ClaimID) String() string { return uuid.UUID(id).String() }

// Made is when the claim was made, to the millisecond, by the store's clock.
func (id ClaimID) Made() time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// Month is the first moment of the month in UTC that the claim was made in.
func (id ClaimID) Month() time.Time { return MonthOf(id.Made()) }

// ParseClaimID reads the text form of a UUIDv7.
func ParseClaimID(text string) (ClaimID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return ClaimID{}, err
	}
	if len(text) != len(uuid.Nil.String()) || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		return ClaimID{}, errors.New("not the text form of a UUIDv7")
	}
	return ClaimID(id), nil
}

// ClaimRequest is a request that wants to have an effect once: the first use of its
// key wins.
type ClaimRequest struct {
	// Key is unique within the tenant, at most 1,300 bytes of UTF-8 without NUL.
	Key string
	// Fingerprint of the request: the same key with another one is
	// a conflict.
	Fingerprint [32]byte
}

// ClaimState says what BeginClaims found.
type ClaimState string

// What BeginClaims finds under a key.
const (
	// ClaimOpen: the key is new, or no response was stored: the caller has the effect
	// under ID.
	ClaimOpen ClaimState = "open"
	// ClaimConflict: the key was used with another fingerprint, in Fingerprint.
	ClaimConflict ClaimState = "conflict"
	// ClaimDone: the response of the first use is in Response.
	ClaimDone ClaimState = "done"
)

// Response is the answer to the first use of a key.
type Response struct {
	Status int    // of HTTP
	Body   []byte // JSON
}

// ClaimResult is what BeginClaims found under one key.
type ClaimResult struct {
	State       ClaimState
	ID          ClaimID
	Fingerprint [32]byte // the stored one
	Response    Response // of ClaimDone
}

// Completion ends a claim.
type Completion struct {
	ID       ClaimID
	Response Response
}

// LedgerStats are for metrics and operators.
type LedgerStats struct {
	Held        int64     // claims that are kept, an estimate where counting is dear
	OldestMonth time.Time // first moment of the oldest month, in UTC; zero without claims
}

// Ledger is the memory of the front door: which keys were used, for what, and
// with which answer. Claims are kept per tenant; a tenant's calls reach no
// other tenant's rows, by row-level security where the database has it. Claims
// expire by month.
//
// A claim's way: BeginClaims, the effect under the claim's id, CompleteClaims. Any number
// of requests may do so at the same time, or after one whose process died: decide applies
// the effect once, see Decision.Claims, and all get the first response that is stored. A
// ledger in the file of the inbox makes claims and responses durable with the next append
// to it; a crash before that forgets them.
type Ledger interface {
	// BeginClaims stores each key that is new with an id and its fingerprint, and returns
	// what each has, in the order of intents. Keys whose claim was made at least keep ago
	// count as new. Of one key in several calls, by whichever processes, or several times
	// in one, the first is stored, also where a month begins. A key or tenant that cannot
	// be kept is Poison. After an error some keys may be stored.
	BeginClaims(ctx context.Context, tenant string, intents []ClaimRequest, keep time.Duration) ([]ClaimResult, error)
	// CompleteClaims stores responses of claims, whichever attempt made them. The
	// first response stays: it returns, in order, the answers that are stored now.
	// A claim that is gone keeps the given one.
	CompleteClaims(ctx context.Context, tenant string, done []Completion) ([]Response, error)
	// RetainClaims drops the claims of months that ended at least keep ago, and returns how many
	// months were dropped. The time is the store's: a process whose clock is wrong drops nothing
	// that lives. Any process may call it at any time. It waits for transactions under way; Retry
	// when that takes too long.
	RetainClaims(ctx context.Context, keep time.Duration) (dropped int, err error)
	// LedgerStats reads them over all tenants.
	LedgerStats(ctx context.Context) (LedgerStats, error)
}

// KeyDigest is the digest of a key of a tenant.
type KeyDigest [16]byte

// DigestKey returns the digest of a tenant's key: the first half of the SHA-256 of
// the length of the tenant in 8 bytes, the tenant, and the key.
func DigestKey(tenant, key string) KeyDigest {
	text := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(tenant)+len(key)), uint64(len(tenant)))
	sum := sha256.Sum256(append(append(text, tenant...), key...))
	return KeyDigest(sum[:16])
}

// Use is the purpose of a claim. The zero one is not known.
type Use struct {
	Key     KeyDigest
	Content [8]byte // the first of the ClaimRequest's Fingerprint
}

// Decided is where a claim had its effect: the version of the record that was
// decided, with any result.
type Decided struct {
	ID      ClaimID
	Version change.Version
	// Use of a key that the claim has: at most one has it, the newest. The zero one
	// for a claim that is known by its id alone.
	Use
}
