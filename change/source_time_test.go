package change_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
)

// An entity is young for the window, and up to two minutes more; not where the times are unknown or
// contradict each other.
func TestYoung(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 12, 1, 59, 0, time.UTC)
	for had, young := range map[time.Duration]bool{
		0: true, time.Minute: true, 10 * time.Minute: true, 12*time.Minute + 2*time.Second: false,
		time.Hour: false, 30 * 365 * 24 * time.Hour: false, -2 * time.Minute: false, -10_000 * 24 * time.Hour: false,
	} {
		c := change.Change{Time: begin.Add(had), Entered: change.EnteredAt(begin)}
		require.Equal(t, young, c.Young(10*time.Minute), "after %s", had)
		c.At, c.Time = c.Time, time.Time{}
		require.Equal(t, young, c.Young(10*time.Minute), "after %s at the source", had)
	}
	require.False(t, (&change.Change{Time: begin}).Young(time.Hour), "not known")
	require.Equal(t, change.Entered(1), change.EnteredAt(time.Unix(0, 0)))
	require.Equal(t, change.MaxEntered, change.EnteredAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
	late := change.Change{Time: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Entered: change.MaxEntered}
	require.False(t, late.Young(24*time.Hour), "counts rather than not")
}

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
		{Op: change.Upsert, Forced: true, Resent: 7, Content: change.Content{1, 2}, Doc: []byte("{}")},
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
