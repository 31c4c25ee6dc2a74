package linearizable

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// client makes one call after the other.
type client struct {
	*process
	number int
	random *rand.Rand
	held   map[int32]store.Token // of progress that it took, or that it believes to be
}

func (c *client) run(ctx context.Context) error {
	c.held = map[int32]store.Token{}
	for n := range c.Calls {
		select {
		case <-c.reached[min(n*len(c.reached)/c.Pace, len(c.reached)-1)]:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.call(ctx); err != nil {
			return err
		}
	}
	return nil
}

// call makes one call on one or two entities; every entity is an operation.
func (c *client) call(ctx context.Context) error {
	if c.random.IntN(12) == 0 { // cut off in the middle of it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.random.IntN(4000))*time.Microsecond)
		defer cancel()
	}
	targets := c.random.Perm(entities)[:1+c.random.IntN(5)/4]
	switch dice := c.random.IntN(10); {
	case dice < 7:
		return c.rows(ctx, targets)
	default:
		return c.progress(ctx)
	}
}

func (c *client) rows(ctx context.Context, targets []int) error {
	ins := make([]input, len(targets))
	keys := make([]store.Key, len(targets))
	for i, n := range targets {
		keys[i] = store.Key{Service: c.Service, Entity: entity(n)}
		ins[i] = input{Kind: read, Entity: keys[i].Entity}
	}
	end := c.begin(c.number, ins)
	found, err := c.store.Rows(ctx, keys)
	if err != nil {
		end(nothing, nil)
		return bearable("rows", err)
	}
	outs := make([]output, len(found))
	for i, r := range found {
		outs[i].Row = rowOf(r)
	}
	end(ended, outs)
	return nil
}

// progressRows is how many rows of progress there are. A few clients contend for each: with
// all at one, another client would take it before every swap.
const progressRows = 16

// progress takes the progress of the client's partition, or swaps it after an earlier
// take, even if another client took it since.
func (c *client) progress(ctx context.Context) error {
	partition := int32(c.number % progressRows)
	in := input{Kind: takePlace, Entity: progress(partition), Token: c.token()}
	old, held := c.held[partition]
	if !held || c.random.IntN(4) == 0 {
		end := c.begin(c.number, []input{in})
		taken, err := c.store.TakeProgress(ctx, []int32{partition}, in.Token)
		if err != nil { // it may have been written: it stays open
			delete(c.held, partition)
			return bearable("take progress", err)
		}
		out := output{}
		if places := taken[0].Positions; len(places) > 0 {
			out.Next = places[0].Entities
		}
		end(ended, []output{out})
		c.held[partition] = in.Token
		return nil
	}
	in.Kind, in.Old, in.To = swapPlace, old, c.random.Int64()
	end := c.begin(c.number, []input{in})
	swapped, err := c.store.SwapProgress(ctx, c.Revision, []store.ProgressSwap{{Old: old,
		Progress: store.Progress{Partition: partition, Token: in.Token, Positions: []store.ServicePosition{{Service: c.Service, Entities: in.To}}}}})
	delete(c.held, partition)
	if err != nil { // as above
		return bearable("swap progress", err)
	}
	end(ended, []output{{Passed: swapped[0]}})
	if c.held[partition] = in.Token; !swapped[0] && c.random.IntN(2) == 0 {
		delete(c.held, partition)
	}
	return nil
}

func (c *client) token() (t store.Token) {
	binary.BigEndian.PutUint64(t[:], c.random.Uint64())
	binary.BigEndian.PutUint64(t[8:], c.random.Uint64())
	return t
}

// bearable passes errors on that no cut connection explains.
func bearable(what string, err error) error {
	if err == nil {
		return nil
	}
	if c := store.ClassOf(err); c == store.Retry || c == store.Unknown {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
