package simulation

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/ingest/gate"
)

// door is one process's connection to the gate that all share. It forgets now
// and then, and fails.
type door struct {
	gate.Gate
	p    *process
	dice *dice
}

func (g *door) ask(ctx context.Context, what string, do func() error) error {
	if err := g.p.reach(ctx, g.dice.upTo(3*time.Millisecond)); err != nil {
		return err
	}
	if g.p.w.fault(g.dice, what+" fails", 1) {
		return errStore
	}
	return do()
}

func (g *door) Seen(ctx context.Context, entries []gate.Entry) (seen []bool, err error) {
	err = g.ask(ctx, "gate", func() (err error) {
		if seen, err = g.Gate.Seen(ctx, entries); err == nil && g.p.w.rules.GateFirst {
			err = g.Gate.Mark(ctx, entries)
		}
		return err
	})
	return seen, err
}

func (g *door) Mark(ctx context.Context, entries []gate.Entry) error {
	return g.ask(ctx, "mark", func() error { return g.Gate.Mark(ctx, entries) })
}
