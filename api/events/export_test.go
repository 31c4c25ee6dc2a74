package events

import "context"

// For tests of the decoders alone.
var (
	ParseKey        = parseKey
	StructuredEvent = structuredEvent
	BinaryEvent     = binaryEvent
)

// Coalescer joins calls.
type Coalescer struct{ t *coalescer[int, string] }

// NewTogether makes one of do.
func NewTogether(do func(context.Context, string, []int) ([]string, error)) Coalescer {
	return Coalescer{&coalescer[int, string]{do: do}}
}

// Call is one call.
func (t Coalescer) Call(ctx context.Context, tenant string, in []int) ([]string, error) {
	return t.t.call(ctx, tenant, in)
}

// Waiting counts the calls without a cancelled context.
func (t Coalescer) Waiting(tenant string) (n int) {
	t.t.mu.Lock()
	defer t.t.mu.Unlock()
	if l := t.t.lines[tenant]; l != nil {
		for _, c := range l.waiting {
			if c.ctx.Err() == nil {
				n++
			}
		}
	}
	return n
}
