package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// Two pipelines share a gate, by its default prefix, and the name of a source: each has a
// store and logs of its own, and neither hides an event from the other. The mistake that
// this catches: marks named the inbox by a number that begins anew in every store.
func TestTwoPipelinesOnOneGate(t *testing.T) {
	const entities = 10
	valkey := servers.StartOwn(t, "valkey") // a default prefix is not the test's own
	gate := fmt.Sprintf("gate: {valkey: {address: %q, timeout: 1m}}\n", valkey.Address)
	send := func(p harness.Project) {
		t.Helper()
		p.Append("events.jsonl", harness.Many(entities, 0, 1))
		require.EqualValues(t, 0, p.Drain().Repeated)
		require.NoError(t, harness.Settled(p.Records("out/acme.jsonl"), entities, "r0"))
		p.Append("events.jsonl", harness.Many(entities, 0, 1))
		require.EqualValues(t, entities, p.Drain().Repeated, "its own repetitions are known")
	}
	t.Run("on brokers", func(t *testing.T) {
		for range 2 {
			send(harness.SimpleOnBrokers(t, "inbox: {partitions: 2}", gate, map[string]string{"acme": harness.FileSink("acme")}))
		}
	})
	t.Run("embedded", func(t *testing.T) {
		for range 2 {
			send(harness.Simple(t, gate, map[string]string{"acme": harness.FileSink("acme")}))
		}
	})
}

// A state file without brokers is replaced by a new one, while the source's offsets stay
// with the broker: the new one reads the topic from its start.
func TestNewStateReadsATopicFromItsStart(t *testing.T) {
	for _, records := range []int{1, 1000} {
		t.Run(fmt.Sprint("frame_records ", records), func(t *testing.T) {
			f := newFeed(t, "crm.events", "    entity: id")
			main, err := os.ReadFile(f.Path("weir.yaml"))
			require.NoError(t, err)
			f.Write("weir.yaml", harness.ReplaceOnce(t, string(main), "topic: crm.events", fmt.Sprint("topic: crm.events, frame_records: ", records)))
			f.produce("", `{"id":"A","state":"1"}`, "", `{"id":"B","state":"2"}`)
			f.Drain()
			require.Len(t, f.Records("out/acme.jsonl"), 2)
			f.Drain()
			require.Len(t, f.Records("out/acme.jsonl"), 2, "the same state resumes at its offsets")
			require.NoError(t, os.RemoveAll(f.Path("data")))
			require.NoError(t, os.Remove(f.Path("out/acme.jsonl")))
			f.Drain()
			require.Len(t, f.Records("out/acme.jsonl"), 2)
		})
	}
}
