package change_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
)

// The time at the source survives both logs.
func TestTheTimeAtTheSourceIsKept(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	for _, c := range []change.Change{
		{Op: change.Retract, Effect: change.Leaves, At: now.Add(-90 * 24 * time.Hour), Content: change.Retracted()},
		{Op: change.Retract, Effect: change.Leaves, At: now, Content: change.Retracted()},
		{Op: change.Retract, Effect: change.Leaves, At: now.Add(time.Hour), Content: change.Retracted()},
		{Op: change.Upsert, Effect: change.Enters, Content: change.Content{1, 2}, Doc: []byte("{}")},
		{Op: change.Upsert, Effect: change.Keeps, Mends: true, Content: change.Content{1, 2}, Doc: []byte("{}")},
	} {
		c.Service, c.Entity, c.Version, c.Time, c.Revision = "a/b@c", "e", change.NewVersion(1, 7), now, 1
		c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
		got, rest, err := change.Decode(c.AppendBinary(nil))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, c, got)
	}
	for _, at := range []int64{0, change.AtIngest, now.UnixMilli()} {
		e := change.Event{Origin: change.Origin{Source: "s"}, Op: change.Delete, At: at}
		key, head, value, err := change.EncodeRecord(change.Record{Entity: "e", Event: &e})
		require.NoError(t, err)
		got, err := change.DecodeRecord(key, head, value)
		require.NoError(t, err)
		require.Equal(t, at, got.Event.At)
	}
}
