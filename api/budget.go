package api

import "context"

// The budgets of memory. Bodies count by their bytes. What they become counts by
// values: a Tree has 32 bytes for each, three times that while it grows, members
// that must be sorted have more, and stripping makes another one beside it.
const (
	// bodiesAtATime is the budget of bodies, in largest bodies; one token may have
	// a quarter of it.
	bodiesAtATime = 16
	// sharesAtATime is the budget of what they become, in what one token may have.
	sharesAtATime = 4
	// valueCost is what a value may cost in bytes.
	valueCost = 160
	// rowValues are the values that a row costs beside its own: its claim, its
	// record for the inbox and its result are about a kilobyte.
	rowValues = 8
)

// BytesPerValue: of so many bytes of a body a value has room, also where none
// was seen, as in base64.
const BytesPerValue = 32

// mostValues is how many values a body may have: all that fit into the largest
// if that is small; else a million, or more if the largest is over 16 MiB.
func (o *Options) mostValues() int64 {
	return max(o.MaxBody/16, min(o.MaxBody, 1<<20))
}

// share is what one token may have of the budget of values: the most that one
// request can need.
func (o *Options) share() int64 {
	return max(o.mostValues(), o.MaxBody/BytesPerValue) + rowValues*int64(o.MaxRows)
}

// Budget returns the most memory in bytes that bodies, and what they become, have
// at a time in a server of these options.
func (o Options) Budget() int64 {
	o.defaults()
	return bodiesAtATime*o.MaxBody + sharesAtATime*o.share()*valueCost
}

// acquireBytes takes n bytes of the budgets for the request, or returns false when ctx ends.
func (q *request) acquireBytes(ctx context.Context, n int64) bool {
	if q.share.bodies.Acquire(ctx, n) != nil {
		return false
	}
	if q.server.bodies.Acquire(ctx, n) != nil {
		q.share.bodies.Release(n)
		return false
	}
	q.held += n
	return true
}

// acquireValues takes room for n values, or returns false when ctx ends. Who has it waits
// for no more, so those that wait for it get it.
func (q *request) acquireValues(ctx context.Context, n int64) bool {
	if q.share.values.Acquire(ctx, n) != nil {
		return false
	}
	if q.server.values.Acquire(ctx, n) != nil {
		q.share.values.Release(n)
		return false
	}
	q.values += n
	return true
}

func (q *request) release() {
	if q.held > 0 {
		q.share.bodies.Release(q.held)
		q.server.bodies.Release(q.held)
		q.held = 0
	}
	if q.values > 0 {
		q.share.values.Release(q.values)
		q.server.values.Release(q.values)
		q.values = 0
	}
}
