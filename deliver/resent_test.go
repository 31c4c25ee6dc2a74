package deliver_test

import (
	"encoding/json"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// A dead letter of a log sink that an operator sends again goes out behind what
// is newer and confirmed, takes nothing back, and holds nothing newer up.
func TestAResentChangeGoesToALogSink(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100})
	old, newer, newest := f.change("a", 1), f.change("a", 2), f.change("a", 3)
	f.done(f.hand(newer))
	old.Resent = newest.Version
	f.done(f.hand(old))
	f.done(f.hand(newest))
	require.Equal(t, []string{name(newer), name(old), name(newest)}, f.sink.has())
	require.Equal(t, newest.Version, f.row("a").DeliveredVersion)

	f = newFixture(t, state)
	old, newer = f.change("a", 1), f.change("a", 2)
	f.done(f.hand(newer))
	old.Resent = newer.Version
	f.done(f.hand(old))
	require.Equal(t, []string{name(newer)}, f.sink.has(), "a state sink never goes back, whatever is sent")
}

// A change that is refused once more is a dead letter once more, and holds all
// that makes the change again.
func TestAResentChangeDiesAsALetterOfItsOwn(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100})
	f.sink.answer(func([]change.Change) error { return refuse(sinks.Reject, false) })
	c := f.change("a", 1)
	f.done(f.hand(c))
	c.Resent = change.NewVersion(1, 9)
	f.done(f.hand(c))
	f.done(f.hand(c)) // the same once more, as after a crash
	letters, err := f.store.ListLetters(t.Context(), store.LetterFilter{})
	require.NoError(t, err)
	require.Len(t, letters, 2)
	var beside deliver.LetterHeaders
	require.NoError(t, json.Unmarshal(letters[0].Headers, &beside))
	require.Equal(t, deliver.LetterHeaders{Time: c.Time.UnixMilli(), Revision: c.Revision, Content: c.Content}, beside)
}
