package transport

import "github.com/seed-86dfc502/weir/change"

// WithTrace adds the headers of a trace context to a record's; t may be
// nil.
func WithTrace(headers []Header, t *change.Trace) []Header {
	if t == nil {
		return headers
	}
	headers = append(headers, Header{Key: change.TraceParentHeader, Value: []byte(t.Parent)})
	if t.State != "" {
		headers = append(headers, Header{Key: change.TraceStateHeader, Value: []byte(t.State)})
	}
	return headers
}
