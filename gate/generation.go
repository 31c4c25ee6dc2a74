package gate

import (
	"context"
	"strconv"
)

// PerGeneration returns a gate whose marks are those of a generation of the inbox: what the
// one before took in may be lost with it, and is no repetition when it comes again.
// generation is asked at every call.
func PerGeneration(g Gate, generation func() uint16) Gate { return &under{g, generation} }

type under struct {
	Gate
	generation func() uint16
}

func (u *under) keyed(entries []Entry) []Entry {
	prefix := strconv.Itoa(int(u.generation())) + "/"
	keyed := make([]Entry, len(entries))
	for i, e := range entries {
		e.Source = prefix + e.Source
		keyed[i] = e
	}
	return keyed
}

// Seen implements Gate.
func (u *under) Seen(ctx context.Context, entries []Entry) ([]bool, error) {
	return u.Gate.Seen(ctx, u.keyed(entries))
}

// Mark implements Gate.
func (u *under) Mark(ctx context.Context, entries []Entry) error {
	return u.Gate.Mark(ctx, u.keyed(entries))
}
