package decide

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// Two owners that fence each other must not do so in turns: one that was fenced waits
// before it takes over again.
func TestAFencedOwnerWaitsBeforeItTakesOver(t *testing.T) {
	for class, waits := range map[store.Class]bool{store.Fenced: true, store.Retry: false} {
		w := &worker{d: &Decider{opt: Options{RetakeDelay: time.Hour}}, log: slog.New(slog.DiscardHandler), owned: map[int32]*ownership{3: {}}}
		w.markStale(3, store.WithClass(errors.New("no"), class))
		require.Equal(t, !waits, w.retakeDue(3, w.owned[3]), class)
		w.owned[3].due = w.owned[3].due.Add(-2 * time.Hour)
		require.True(t, w.retakeDue(3, w.owned[3]))
	}
}
