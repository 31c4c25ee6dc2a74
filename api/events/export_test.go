package events

import "context"

// For tests of the decoders alone.
var (
	ParseKey        = parseKey
	StructuredEvent = structuredEvent
	BinaryEvent     = binaryEvent
)

// RowsOf splits a batch of lines, or of an array.
func RowsOf(inLines bool, body []byte, limit int) ([][]byte, error) {
	if inLines {
		return rowsOf(lines, body, limit)
	}
	return rowsOf(array, body, limit)
}

// Together joins calls.
type Together struct{ t *together[int, string] }

// NewTogether makes one of do; key may be nil.
func NewTogether(do func(context.Context, string, []int) ([]string, error), key func(int) string) Together {
	return Together{&together[int, string]{do: do, key: key}}
}

// Call is one call.
func (t Together) Call(ctx context.Context, tenant string, in []int) ([]string, error) {
	return t.t.call(ctx, tenant, in)
}

// Waiting counts the calls that nobody has given up.
func (t Together) Waiting(tenant string) (n int) {
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
