package fenced

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// Writer is an identity to append under. Used by one goroutine at a time. The batches that it
// made may be under way together.
type Writer struct {
	id       string // transactional id; "" without one
	producer int64
	epoch    int16
	next     map[int32]int32 // sequence number, by partition of the topic
}

// Fenced reports whether a successor can end w.
func (w *Writer) Fenced() bool { return w.id != "" }

// Lifetime is how long a Writer may be used: half of how long leaders remember it.
const Lifetime = 12 * time.Hour

const (
	// transactionTimeout is after which time a coordinator ends a dead process's transaction.
	// Nothing is ever written into these transactions.
	transactionTimeout = time.Minute
	// markerPause is the interval of checks whether the markers are written.
	markerPause = 5 * time.Millisecond
)

// Fence takes over the identity of a transactional id: its former owner appends
// nothing more to t after Fence returned. It waits, until ctx ends, for all partitions.
func (c *Client) Fence(ctx context.Context, id string, t *Topic) (*Writer, error) {
	w, err := c.identity(ctx, id)
	if err == nil {
		err = c.touch(ctx, w, t)
	}
	if err == nil {
		// This aborts the transaction, and says nothing before its markers are written.
		w, err = c.identity(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("fence %s: %w", id, err)
	}
	return w, nil
}

// Anyone makes a new identity, which no successor can end.
func (c *Client) Anyone(ctx context.Context) (*Writer, error) { return c.identity(ctx, "") }

// identity asks for the next epoch of a transactional id.
func (c *Client) identity(ctx context.Context, id string) (*Writer, error) {
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		if id != "" {
			req.TransactionalID = kmsg.StringPtr(id)
		}
		req.TransactionTimeoutMillis = int32(transactionTimeout.Milliseconds())
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, c.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err == nil:
			return &Writer{id: id, producer: resp.ProducerID, epoch: resp.ProducerEpoch, next: map[int32]int32{}}, nil
		case !busy(err) || !wait.Sleep(ctx, markerPause):
			return nil, fmt.Errorf("ask for a producer id: %w", err)
		}
	}
}

// touch opens a transaction over all partitions of t.
func (c *Client) touch(ctx context.Context, w *Writer, t *Topic) error {
	for {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = w.id, w.producer, w.epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic = t.Name
		for p := range t.leaders {
			rt.Partitions = append(rt.Partitions, int32(p))
		}
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, c.cl)
		if err == nil {
			err = addError(resp)
		}
		switch {
		case err == nil:
			return nil
		case !busy(err) || !wait.Sleep(ctx, markerPause):
			return fmt.Errorf("reach all partitions of topic %s: %w", t.Name, err)
		}
	}
}

// addError returns the first error that is a cause, not a consequence.
func addError(resp *kmsg.AddPartitionsToTxnResponse) error {
	codes := []int16{resp.ErrorCode}
	for i := range resp.Transactions {
		for j := range resp.Transactions[i].Topics {
			for _, p := range resp.Transactions[i].Topics[j].Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	}
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	codes = slices.DeleteFunc(codes, func(code int16) bool { return code == 0 })
	if i := slices.IndexFunc(codes, func(code int16) bool { return code != kerr.OperationNotAttempted.Code }); i > 0 {
		codes[0] = codes[i]
	}
	if len(codes) == 0 {
		return nil
	}
	return kerr.ErrorForCode(codes[0])
}

// busy: a transaction before this one is not at its end yet.
func busy(err error) bool { return errors.Is(err, kerr.ConcurrentTransactions) }
