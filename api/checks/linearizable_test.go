package checks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// call is a check, or a confirmation or release of a version.
type call struct {
	Verb, Content, Event string
	Sequence             int
	Version              uint64
}

// reply is the answer to a call. An open call ended without one: it may take effect at any later time or never.
type reply struct {
	Open, Repeated, Known, Done bool
	Decision                    Decision
	Version                     uint64
}

// answer returns the book after a call, and the reply.
func (b *book) answer(c call) (after *book, r reply) {
	known := *b
	after = &known
	after.passes, after.seen = slices.Clone(b.passes[max(0, len(b.passes)-1):]), slices.Clone(b.seen)
	switch c.Verb {
	case "check":
		r.Decision, r.Version, r.Repeated = after.check(c.Content, c.Event, c.Sequence, 0)
	case "confirm":
		if r.Known = after.confirm(c.Version); r.Known {
			r.Version = after.confirmed
		}
	default:
		var heard bool
		if heard, r.Done = after.release(c.Version, c.Verb == "refuse"); heard {
			r.Known, r.Version = r.Done && after.stands != "", after.last().version
		}
	}
	return after, r
}

var bookModel = porcupine.Model{
	Init: func() any { return &book{} },
	Step: func(state, in, out any) (bool, any) {
		after, r := state.(*book).answer(in.(call))
		return out.(reply).Open || out == r, after
	},
	Equal: func(a, b any) bool { return reflect.DeepEqual(a, b) },
}

// send makes a call. An error is neither an answer nor one that leaves open whether the call was decided.
func (f *fixture) send(c *Checker, entity string, in call) (reply, error) {
	version := change.Version(in.Version)
	var r reply
	var err error
	switch in.Verb {
	case "check":
		request := Request{Entity: entity, Content: Given(in.Content), EventID: in.Event}
		if in.Sequence != 0 {
			request.Sequence = strconv.Itoa(in.Sequence)
		}
		results, failed := c.Check(f.Context(), f.service, []Request{request})
		require.NoError(f, failed)
		a := results[0].Value
		r, err = reply{Decision: a.Decision, Version: uint64(a.Version), Repeated: a.Repeated}, results[0].Err
	case "confirm":
		results, failed := c.Confirm(f.Context(), f.service, []Confirmation{{entity, version}})
		require.NoError(f, failed)
		r, err = reply{Known: true, Version: uint64(results[0].Value)}, results[0].Err
	default:
		outcome := Unknown
		if in.Verb == "refuse" {
			outcome = Refused
		}
		results, failed := c.Release(f.Context(), f.service, []Failure{{entity, version, outcome}})
		require.NoError(f, failed)
		a := results[0].Value
		r, err = reply{Done: a.Done, Known: a.Known, Version: uint64(a.Version)}, results[0].Err
	}
	switch {
	case errors.Is(err, ErrUnknownVersion):
		return reply{}, nil
	case err != nil && store.ClassOf(err) == store.Unknown && !errors.Is(err, ErrContended):
		return reply{Open: true}, nil
	}
	return r, err
}

// history lets the Checkers of four processes decide calls about one entity over one store, which loses requests
// and answers of swaps. A blind store swaps regardless of writes since the read.
func history(t *testing.T, blind bool, seed uint64) (all []porcupine.Operation) {
	const processes, clients, calls = 4, 2, 9
	f := newFixture(t)
	lost := store.WithClass(errors.New("lost"), store.Unknown)
	var mu sync.Mutex
	var work sync.WaitGroup
	start := time.Now()
	for process := range processes {
		dice := rand.New(rand.NewPCG(seed, uint64(process))) // of one transaction at a time
		h := &hooked{real: f.store}
		h.beforeSwap = func(ctx context.Context, rows []store.CheckRow) error {
			if !blind && dice.IntN(30) == 0 {
				return lost
			}
			for i := range rows {
				if !blind {
					continue
				}
				present, err := f.store.CheckRows(ctx, []store.Key{rows[i].Key})
				if err != nil {
					return err
				}
				rows[i].Revision = present[0].Revision
			}
			return nil
		}
		h.afterSwap = func() error {
			if !blind && dice.IntN(30) == 0 {
				return lost
			}
			return nil
		}
		// The clock does not move, so a version is one more than the last.
		c := f.checker(Options{Store: h, Now: func() time.Time { return time.UnixMicro(0) }})
		for client := range clients {
			work.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(100+process*clients+client)))
				heard := []uint64{1}
				for n := range calls {
					in := call{Verb: []string{"check", "check", "check", "confirm", "release", "refuse"}[r.IntN(6)]}
					if in.Verb != "check" {
						in.Version = heard[max(0, len(heard)-1-r.IntN(2))]
					} else {
						in.Content = []string{"A", "B", fmt.Sprint(process, client, n)}[r.IntN(3)]
						in.Event = []string{"", fmt.Sprint("e", r.IntN(6))}[r.IntN(2)]
						in.Sequence = r.IntN(2) * r.IntN(12)
					}
					o := porcupine.Operation{ClientId: process*clients + client, Input: in, Call: int64(time.Since(start))}
					out, err := f.send(c, "hot", in)
					o.Output, o.Return = out, int64(time.Since(start))
					switch {
					case errors.Is(err, ErrContended):
						continue // nothing was decided
					case !assert.NoError(t, err):
						return
					case out.Open:
						o.Return = math.MaxInt64
					case out.Decision == Pass:
						heard = append(heard, out.Version)
					}
					mu.Lock()
					all = append(all, o)
					mu.Unlock()
				}
			})
		}
	}
	work.Wait()
	return all
}

// I3: one order of the calls of several processes explains every answer. The test's own test is a store that swaps
// without regard to other writes since the read, which is found.
func TestI3DecisionsOfSeveralProcessesAreLinearizable(t *testing.T) {
	open := 0
	for seed := range uint64(2) {
		all := history(t, false, seed)
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(bookModel, all, 5*time.Minute), "seed %d", seed)
		for _, o := range all {
			if o.Output.(reply).Open {
				open++
			}
		}
	}
	require.Positive(t, open, "no answer was lost")
	for seed := range uint64(20) {
		if porcupine.CheckOperationsTimeout(bookModel, history(t, true, seed), 5*time.Minute) == porcupine.Illegal {
			return
		}
	}
	t.Error("the checker does not find a store that does not compare")
}
