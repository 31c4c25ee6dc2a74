package linearizable

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// client makes one call after the other.
type client struct {
	*process
	number   int
	contents []change.Content
	random   *rand.Rand
	seen     map[string][]row      // the last rows that it read, per entity
	held     map[int32]store.Token // of progress that it took, or that it believes to be
}

func (c *client) run(ctx context.Context) error {
	c.seen, c.held = map[string][]row{}, map[int32]store.Token{}
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
	case dice < 5:
		return c.rows(ctx, targets)
	case dice < 8:
		return c.swap(ctx, targets)
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
	for i, r := range outs {
		last := append(c.seen[keys[i].Entity], r.Row)
		c.seen[keys[i].Entity] = last[max(0, len(last)-4):]
	}
	return nil
}

// swap checks some content under the version that the client last read: what
// is not an inbox record must not run ahead of the inbox.
func (c *client) swap(ctx context.Context, targets []int) error {
	ins := make([]input, len(targets))
	checks := make([]store.Check, len(targets))
	for i, n := range targets {
		k := store.Check{Key: store.Key{Service: c.Service, Entity: entity(n)}}
		var last row
		if rows := c.seen[k.Entity]; len(rows) > 0 {
			last = rows[len(rows)-1]
		}
		k.Version = last.Version
		k.Content = c.content(last)
		checks[i] = k
		ins[i] = input{Kind: swap, Entity: k.Entity, Content: k.Content, Version: k.Version}
	}
	defer c.enter(targets)()
	end := c.begin(c.number, ins)
	passed, err := c.store.CompareAndSwap(ctx, checks)
	switch {
	case err == nil:
		outs := make([]output, len(passed))
		for i, p := range passed {
			outs[i].Passed = p
		}
		end(ended, outs)
	case store.ClassOf(err) == store.Retry:
		end(nothing, nil)
	}
	return bearable("compare and swap", err)
}

// content is what the row may hold, what a decision may offer, or unknown;
// or something that nobody else offers, because that tells porcupine most.
func (c *client) content(last row) change.Content {
	switch dice := c.random.IntN(16); {
	case dice == 0:
		return nil
	case dice < 5 && last.Content != "":
		return change.Content(last.Content)
	case dice < 12:
		return c.contents[c.random.IntN(len(c.contents))]
	}
	var own canonicaltree.Digest
	binary.BigEndian.PutUint64(own[:], c.random.Uint64())
	return change.Hashed(canonicaltree.Scheme, own)
}

// progressRows is how many rows of progress there are. A few clients contend for each: with
// all at one, somebody else would take it before every swap.
const progressRows = 16

// progress takes the progress of the client's partition, or swaps what it took,
// whoever did that since.
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
		if places := taken[0].Places; len(places) > 0 {
			out.Next = places[0].Offset
		}
		end(ended, []output{out})
		c.held[partition] = in.Token
		return nil
	}
	in.Kind, in.Old, in.To = swapPlace, old, c.random.Int64()
	end := c.begin(c.number, []input{in})
	swapped, err := c.store.SwapProgress(ctx, c.Revision, []store.ProgressSwap{{Old: old,
		Progress: store.Progress{Partition: partition, Token: in.Token, Places: []store.ServicePlace{{Service: c.Service, Place: store.Place{Offset: in.To}}}}}})
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

// enter waits until fewer than Writers clients of this process are writing any of
// these entities, and gives what leaves again. What porcupine has to try grows
// exponentially with the writes that are under way on one entity at a time,
// and on a slow machine all clients would be.
func (c *client) enter(targets []int) (leave func()) {
	targets = slices.Sorted(slices.Values(targets)) // in one order: no two wait for one another
	for _, n := range targets {
		c.writing[n] <- struct{}{}
	}
	return func() {
		for _, n := range targets {
			<-c.writing[n]
		}
	}
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
