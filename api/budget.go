package api

import "context"

// The budget of memory. A request counts with the buffers of its connection, the bytes
// of its body, and the memory that the body becomes: a Tree has 32 bytes for each
// value, three times that while it grows, members that must be sorted have more, and
// stripping makes another one beside it.
const (
	// placesShare is the part of the budget for connections' buffers.
	placesShare = 8
	// http1Place and http2Place bound the buffers of the connection of a request under
	// way, in bytes.
	http1Place = 8 << 10
	http2Place = streamWindow
	// bodyShare (in tenths of a tenant's room) bounds a body; the rest is for
	// records and values.
	bodyShare = 3
	// bodyCost is the bytes charged for a byte of a body: rows become records.
	bodyCost = 2
	// valueCost is the bytes charged for a value.
	valueCost = 160
	// rowCost is the bytes charged for a row beside its value: its claim, its record for
	// the inbox and its result.
	rowCost = 2048
	// asAnnounced is how much of a body arrives before all of it is reserved. Bodies
	// that grow piece by piece could each keep the others from their last piece.
	asAnnounced = 64 << 10
)

// BytesPerValue: of how many bytes of a body a value has room, also where none
// was seen, as in base64.
const BytesPerValue = 32

// places is the budget of requests under way, in bytes; one tenant may have a quarter.
func (o *Options) places() int64 { return o.Memory / placesShare }

// room is the budget of bodies and of the records made of them, in bytes.
func (o *Options) room() int64 { return o.Memory - o.places() }

// tenantRoom is what one tenant may have of room: the most that one request can need.
func (o *Options) tenantRoom() int64 { return o.room() / 2 }

// largestBody is the largest body that the budget has room for.
func (o *Options) largestBody() int64 { return o.tenantRoom() * bodyShare / 10 }

// mostValues is how many values a row may have: all that fit into the largest body if
// that is small; else a million, or more if the largest is over 16 MiB, as far as the
// budget has room for them.
func (o *Options) mostValues() int64 {
	free := o.tenantRoom() - bodyCost*(o.MaxBody+1) - rowCost*int64(o.MaxRows)
	return max(1, min(max(o.MaxBody/16, min(o.MaxBody, 1<<20)), free/valueCost))
}

// acquire takes n bytes of the budget for the request, or returns false when ctx ends.
func (q *request) acquire(ctx context.Context, n int64) bool {
	if n <= 0 {
		return true
	}
	if n > q.server.opt.tenantRoom() || q.share.memory.Acquire(ctx, n) != nil {
		return false
	}
	if q.server.memory.Acquire(ctx, n) != nil {
		q.share.memory.Release(n)
		return false
	}
	q.held += n
	return true
}

// release returns the request's part of the budget, but keep bytes.
func (q *request) release(keep int64) {
	if n := q.held - keep; n > 0 {
		q.share.memory.Release(n)
		q.server.memory.Release(n)
		q.held = keep
	}
}
