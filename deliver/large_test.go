package deliver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
)

// The mistake that this catches: 200 services encode a document of 8 MiB at once.
func TestLargeWritesAreBounded(t *testing.T) {
	large := []change.Change{{Doc: make([]byte, 2*largeWrite)}}
	l := newLargeWrites(13 * largeWrite)
	first, err := l.begin(t.Context(), large)
	require.NoError(t, err)
	second, err := l.begin(t.Context(), large)
	require.NoError(t, err)
	full, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.begin(full, large)
	require.ErrorIs(t, err, context.Canceled, "a third waits")
	small, err := l.begin(full, []change.Change{{Doc: []byte(`{}`)}})
	require.NoError(t, err, "small ones do not wait")
	small()
	first()
	third, err := l.begin(t.Context(), large)
	require.NoError(t, err)
	second()
	third()
	whole, err := l.begin(t.Context(), []change.Change{{Doc: make([]byte, 20*largeWrite)}})
	require.NoError(t, err, "a larger one passes alone")
	whole()
}
