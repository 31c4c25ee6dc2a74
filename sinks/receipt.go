package sinks

import (
	"context"
	"time"
)

// MaxAnswer is how much of an answer's body is kept, in bytes.
const MaxAnswer = 200

// Answer is a target's answer to one change.
type Answer struct {
	Status int // by its protocol's number; 0 without one
	// Body is the beginning of its body, at most MaxAnswer bytes. Headers are no part of
	// it.
	Body []byte
}

// Receipt says how one change of a Write fared, taken or not.
type Receipt struct {
	At     time.Time // when the attempt began; zero if none was made
	Took   time.Duration
	Answer Answer
}

type receiptsKey struct{}

// WithReceipts asks the Write that gets the context for a receipt of each change, by
// its place in the batch. A sink whose target does not answer single changes writes
// none. They are complete when Write has returned.
func WithReceipts(ctx context.Context, receipts []Receipt) context.Context {
	return context.WithValue(ctx, receiptsKey{}, receipts)
}

// ReceiptsOf returns where the receipts go, nil when none are requested. Different
// ones may be written concurrently.
func ReceiptsOf(ctx context.Context) []Receipt {
	receipts, _ := ctx.Value(receiptsKey{}).([]Receipt)
	return receipts
}
