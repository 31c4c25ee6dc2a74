package page

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/stretchr/testify/require"
)

// A number above zero never reads as zero, and an unknown one never as a number.
func TestNumbersForPeople(t *testing.T) {
	for want, rate := range map[string]snapshot.Rate{
		"–": {}, "0": {Known: true}, "<0.1": {Known: true, PerSecond: 0.03}, "0.1": {Known: true, PerSecond: 0.05}, "1,234": {Known: true, PerSecond: 1234.4},
	} {
		require.Equal(t, want, rateText(rate))
	}
}

// Times are told as how long ago they were; the time itself is the title.
func TestTimesForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still between two looks
		at := time.Now().Add(-90 * time.Minute)
		title := ` title="` + at.UTC().Format(time.DateTime) + ` UTC"`
		require.Contains(t, string(when(at)), title+` data-ago="5400">1 hour ago</time>`)
		require.Contains(t, string(since(at)), title+`>1 hour</time>`)
		require.Contains(t, string(since(time.Now())), ">1 second<")
	})
}

// An event that was not applied is no base of later differences, and its own are grey.
func TestVersionsOfAppliedEvents(t *testing.T) {
	event := func(outcome, payload string) explain.Event {
		return explain.Event{Source: "lab", Outcome: outcome, Record: &explain.Record{Payload: json.RawMessage(payload)}}
	}
	all := versions(&explain.Explanation{Events: []explain.Event{event("merged", `{"a":1}`), event("stale", `{"a":7}`), event("merged", `{"a":2}`)}})
	require.Equal(t, "1 2", string(all[0].Diff[0].Before)+" "+string(all[0].Diff[0].After))
	require.Equal(t, []bool{true, false, true}, []bool{all[0].Applied(), all[1].Applied(), all[2].Applied()})
}
