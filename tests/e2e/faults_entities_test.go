package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// I5, I7: deleted, purged, created again, and then the source's topic is read
// from its start once more with an empty gate: nothing old comes back to an
// entity that exists. One that was purged and not created again counts as new, as
// docs/guarantees.md says; also then versions go on growing and the last word is
// the same.
func TestReadAgainAfterAPurge(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t)
	hook := harness.NewReceiver(t)
	topic := c.Prefix + "events"
	p := onServers(t, c, hook, fmt.Sprintf("  events: {kafka: {topic: %q}, entity: key, event_id: header:ce_id}", topic))
	// In the process: it is empty at every start.
	text := p.Read("weir.yaml")
	p.Write("weir.yaml", harness.ReplaceOnce(t, text, "gate: {valkey", "gate: {memory: {}}\n#"))
	c.Topics(1, topic)
	serial := 0
	say := func(entity, state string) {
		serial++
		r := harness.Record(topic, entity, fmt.Sprintf(`{"id":%q,"state":%q}`, entity, state))
		if state == "" {
			r.Value = nil
		}
		r.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: fmt.Appendf(nil, "e%d", serial)}}
		c.Send(r)
	}
	history := func() []oracle.Record { return c.Rows("history", "acme/all@history", "seq") }
	for _, e := range []string{"again", "gone", "stays"} {
		say(e, "A")
		say(e, "B")
	}
	say("again", "")
	say("gone", "")
	p.Drain()
	require.Equal(t, []string{"A", "B", "-"}, harness.States(history(), "again"))
	require.Equal(t, []string{"A", "B", "-"}, harness.States(history(), "gone"))

	// The retention is at least an hour, so their time of deletion is moved.
	harness.Exec(t, c.Store, "UPDATE entities SET deleted_at = deleted_at - interval '40 days' WHERE deleted_at IS NOT NULL")
	run := p.Start("run")
	harness.Eventually(t, "the purge", func() error {
		return harness.Want(harness.Number(t, c.Store, "SELECT (SELECT count(*) FROM entities WHERE id <> 'stays') + (SELECT count(*) FROM dam WHERE entity <> 'stays')"), 0)
	})
	say("again", "C")
	harness.Eventually(t, "the new one", func() error { return harness.Want(len(harness.States(history(), "again")), 4) })
	run.Terminate()
	run.Ok()

	rewind(t, c, topic)
	s := p.Drain()
	require.EqualValues(t, serial, s.Read, "all of it came again")
	require.EqualValues(t, 2+4, s.Stale, "of stays and of again")

	rows := history()
	require.Equal(t, []string{"A", "B"}, harness.States(rows, "stays"))
	require.Equal(t, []string{"A", "B", "-", "C"}, harness.States(rows, "again"))
	require.Equal(t, []string{"A", "B", "-", "A", "B", "-"}, harness.States(rows, "gone"))
	last := map[string]uint64{}
	for _, r := range rows {
		require.Greater(t, r.Version, last[r.Entity], r.Entity)
		last[r.Entity] = r.Version
	}
	newest := oracle.Newest(hook.Received())
	require.Equal(t, "B", harness.StateOf(newest["stays"]))
	require.Equal(t, "C", harness.StateOf(newest["again"]))
	require.Equal(t, "retract", newest["gone"].Op)
	// From here on both are as any other.
	say("again", "C")
	say("again", "D")
	say("gone", "E")
	p.Drain()
	require.Equal(t, []string{"A", "B", "-", "C", "D"}, harness.States(history(), "again"))
	require.Equal(t, []string{"A", "B", "-", "A", "B", "-", "E"}, harness.States(history(), "gone"))
}

// rewind sets the offsets of the group that reads a topic back to its start.
func rewind(t *testing.T, c *harness.Cluster, topic string) {
	t.Helper()
	client := kadm.NewClient(c.Kafka)
	groups, err := client.ListGroups(t.Context())
	require.NoError(t, err)
	reset := 0
	for _, group := range groups.Groups() {
		if !strings.HasPrefix(group, c.Prefix) {
			continue // another test's, which may end at any time
		}
		offsets, err := client.FetchOffsets(t.Context(), group)
		require.NoError(t, err)
		if at, ok := offsets.Lookup(topic, 0); ok {
			require.Positive(t, at.At)
			var back kadm.Offsets
			back.AddOffset(topic, 0, 0, -1)
			// Only a group without members takes it: one that could not leave in time is
			// a member for a while yet.
			harness.Eventually(t, "the offset is set back", func() error { return client.CommitAllOffsets(t.Context(), group, back) })
			reset++
		}
	}
	require.Equal(t, 1, reset, "one group reads the source")
}
