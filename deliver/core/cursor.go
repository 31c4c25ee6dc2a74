package core

import "github.com/seed-86dfc502/weir/change"

// LogCursor is how far the frames of one partition's log were handed out.
type LogCursor struct {
	UpTo change.Version // all frames below it were handed out
	Next int64          // the record to read next
	// Of a position whose changes were cut into parts:
	part  int            // the next part
	to    change.Version // where it ends
	first int64          // record of part 0
	cut   uint64         // of part 0; frames of another cut do not continue it
}

// Order is how a frame relates to a cursor.
type Order int

// The orders.
const (
	Follows  Order = iota
	Repeated       // handed out before, or a part of a position that was not begun
	Gap            // its predecessor is missing
)

// Judge returns how a frame relates to the cursor.
func (c *LogCursor) Judge(f *change.Frame) Order {
	switch {
	case f.To <= c.UpTo:
		return Repeated
	case f.Part > 0 && (f.Part != c.part || f.To != c.to || f.Cut != c.cut):
		return Repeated
	case f.Part == 0 && c.part > 0 && f.To == c.to && f.Cut == c.cut:
		// Another owner publishes the same parts. A frame behind the awaited part may
		// precede that owner's, so the position does not begin again.
		return Repeated
	case f.Part == 0 && f.Prev > c.UpTo:
		return Gap
	}
	return Follows
}

// Pass advances the cursor past a frame that follows. It returns the record to restart at
// for that frame, and where the cursor was before.
func (c *LogCursor) Pass(f *change.Frame, offset int64) (start int64, upTo change.Version) {
	upTo = c.UpTo
	if f.Part == 0 {
		c.first, c.cut = offset, f.Cut
	}
	c.Next = offset + 1
	if f.Last {
		c.UpTo, c.part, c.to = f.To, 0, 0
	} else {
		c.part, c.to = f.Part+1, f.To
	}
	return c.first, upTo
}

// Continue returns the frames of an outbox that continue the cursor to the end of a position.
// Without any, missing is the position that the cursor has to reach first, 0 for an outbox
// without newer frames.
func (c LogCursor) Continue(outbox []*change.Frame) (follow []*change.Frame, missing change.Version) {
	at := c
	for _, f := range outbox {
		if at.Judge(f) != Follows {
			continue
		}
		at.Pass(f, 0)
		if follow = append(follow, f); f.Last {
			return follow, 0
		}
	}
	for _, f := range outbox {
		switch {
		case f.To <= c.UpTo:
		case f.Part > 0 && c.Judge(f) != Follows:
			return nil, f.To // its first parts are gone
		default:
			return nil, f.Prev
		}
	}
	return nil, 0
}

// restart is the record to read from after a restart.
func (c *LogCursor) restart() int64 {
	if c.part > 0 {
		return c.first
	}
	return c.Next
}

// reaches reports whether a service at c needs only the frames that the tail hands out from
// now on.
func (c *LogCursor) reaches(tail *LogCursor) bool { return c.part == 0 && c.UpTo >= tail.border() }

// border is where a service may join the tail: of a position that was cut it needs all parts,
// or none.
func (c *LogCursor) border() change.Version {
	if c.part > 0 {
		return c.to
	}
	return c.UpTo
}

// reach advances the cursor to a position, which may end the one whose parts it is in.
func (c *LogCursor) reach(upTo change.Version) {
	if c.UpTo = max(c.UpTo, upTo); c.to <= c.UpTo {
		c.part, c.to = 0, 0
	}
}
