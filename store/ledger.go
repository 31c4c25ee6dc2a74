package store

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// ClaimID names one claim: a UUIDv7 (RFC 9562) in its 16 bytes, so that its
// time is when it was made. An event of the inbox that came in under a claim
// carries its id, and decide lets each claim have its effect once.
type ClaimID [16]byte

// Intent is a request that wants to have an effect once: the first use of its
// key wins.
type Intent struct {
	// Key is unique within the tenant, at most 1,300 bytes of UTF-8 without NUL.
	Key string
	// Fingerprint of what the request asks for: the same key with another one is
	// a conflict.
	Fingerprint [32]byte
}

// ClaimState says what Begin found.
type ClaimState string

// What Begin finds under a key.
const (
	// ClaimStarted: the key was new, or its claim was older than the ledger keeps.
	ClaimStarted ClaimState = "started"
	// ClaimResumed: an earlier attempt ended without a response; the caller
	// finishes it under the same id.
	ClaimResumed ClaimState = "resumed"
	// ClaimBusy: another attempt is under way until Wait is over.
	ClaimBusy ClaimState = "busy"
	// ClaimConflict: the key stands for another fingerprint, in Fingerprint.
	ClaimConflict ClaimState = "conflict"
	// ClaimDone: the response of the first use is in Response.
	ClaimDone ClaimState = "done"
)

// Response is what the first use of a key was answered.
type Response struct {
	Status int    // of HTTP
	Body   []byte // JSON
}

// Claimed is what Begin found under one key.
type Claimed struct {
	State       ClaimState
	ID          ClaimID
	Fingerprint [32]byte      // the stored one
	Response    Response      // of ClaimDone
	Wait        time.Duration // of ClaimBusy: until the other attempt's lease ends
}

// Completion ends a claim.
type Completion struct {
	ID       ClaimID
	Response Response
}

// LedgerStats are for metrics.
type LedgerStats struct {
	Held             int64     // claims that are kept, an estimate where counting is dear
	OldestInProgress time.Time // zero when none is in progress
}

// Ledger is the memory of the front door: which keys were used, for what, and
// what they were answered. Claims are kept per tenant; a tenant's calls reach no
// other tenant's rows, by row-level security where the database has it. Rows
// stand in partitions by month and go by partition.
//
// A claim's way: Begin, the effect under the claim's id, Complete. A process
// that dies in between leaves a claim whose lease ends; the next Begin resumes
// it, and the effect may be repeated: decide applies it once, see
// Decision.Claims.
type Ledger interface {
	// BeginClaims looks for each key, in one transaction, and claims it for lease
	// if it is new, or if the lease of an attempt without response is over. Keys
	// whose claim was made more than keep ago count as new. Answers are in the
	// order of intents; no key twice in one call. Of any number of concurrent
	// calls with one key exactly one starts or resumes it.
	BeginClaims(ctx context.Context, tenant string, intents []Intent, lease, keep time.Duration) ([]Claimed, error)
	// CompleteClaims stores responses of claims, whichever attempt made them. The
	// first response stays: the answers, in order, are those that are stored now.
	// A claim that is not there any more keeps the given one.
	CompleteClaims(ctx context.Context, tenant string, done []Completion) ([]Response, error)
	// AbandonClaims ends the leases of claims without response, so that the next
	// request need not wait. Others are passed over.
	AbandonClaims(ctx context.Context, tenant string, ids []ClaimID) error
	// FindClaim gives the claim of a key; ErrNotFound.
	FindClaim(ctx context.Context, tenant, key string) (Claimed, error)
	// RetainClaims drops the partitions of which every claim was made before the
	// given time, makes those of this and the next month, and tells how many
	// were dropped. Any process may call it at any time.
	RetainClaims(ctx context.Context, before time.Time) (dropped int, err error)
	LedgerStats(ctx context.Context) (LedgerStats, error)
}

// Decided is where a claim had its effect.
type Decided struct {
	ID      ClaimID
	Version change.Version
}
