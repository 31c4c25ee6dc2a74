package main

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/stretchr/testify/require"
)

// The remaining time is the backlog at the rate of the last seconds; without progress it is
// unknown.
func TestTimeLeft(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	look := func(seconds int, decided, source, inbox, pending float64) *snapshot.Snapshot {
		return &snapshot.Snapshot{At: at.Add(time.Duration(seconds) * time.Second), Events: map[string]float64{"merged": decided}, SourceLag: source, InboxLag: inbox, Pending: pending}
	}
	for _, c := range []struct {
		name        string
		before, now *snapshot.Snapshot
		want        string
	}{
		{"the first look", look(0, 100, 10, 10, 10), look(0, 100, 10, 10, 10), ""},
		{"to be decided", look(0, 1000, 0, 0, 0), look(10, 2000, 500, 8500, 70), ", 1m30s left"},
		{"to be delivered", look(0, 2000, 0, 0, 900), look(10, 2000, 0, 0, 300), ", 5s left"},
		{"a target that is away", look(0, 2000, 0, 0, 300), look(10, 2000, 0, 0, 300), ""},
		{"nothing waits", look(0, 1000, 0, 0, 0), look(10, 2000, 0, 0, 0), ""},
	} {
		require.Equal(t, c.want, timeLeft(c.before, c.now, nil), c.name)
	}
	before, now := look(0, 1000, 0, 0, 0), look(10, 2000, 0, 1000, 0)
	now.Sources = map[string]*snapshot.Source{"topic": {LagKnown: true}, "begun": {}}
	require.Equal(t, ", 10s left", timeLeft(before, now, []pipeline.Wait{{For: "source topic"}, {For: "inbox"}}))
	require.Empty(t, timeLeft(before, now, []pipeline.Wait{{For: "source begun"}, {For: "inbox"}}), "nobody knows how much it holds")
}

// One grammar for times, wherever a command takes one.
func TestTimes(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "7d": now.AddDate(0, 0, -7), "2026-01-30": time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC),
		"2026-01-30 08:15": time.Date(2026, 1, 30, 8, 15, 0, 0, time.UTC), "2026-01-30T08:15:00+02:00": time.Date(2026, 1, 30, 6, 15, 0, 0, time.UTC),
	} {
		is, err := parseTime("--since", text, now)
		require.NoError(t, err, text)
		require.Equal(t, want, is, text)
	}
	for _, text := range []string{"yesterday", "-2h", "0s", "7 d"} {
		_, err := parseTime("--since", text, now)
		require.ErrorContains(t, err, "like 90m or 7d", text)
	}
}
