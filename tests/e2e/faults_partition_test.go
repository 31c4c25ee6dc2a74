package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// I1, I4, I13: one partition of the inbox takes nothing. Its events wait, in their order
// and also over a kill; those of all other partitions pass, though every frame of the
// source has events of both. The mistake that this catches: all ingest stopped.
func TestPartitionOfTheInboxThatTakesNothing(t *testing.T) {
	t.Parallel()
	const entities, rounds, partitions, stuck = 40, 30, 4, 1
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"), kfake.GroupMinSessionTimeout(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("events"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(`
kafka: {brokers: [%q], session_timeout: 5s, inbox: {partitions: %d}}
sources:
  events: {kafka: {topic: events, frame_records: 16}, entity: id}
customers: [acme.yaml]
admin: {listen: "127.0.0.1:0"}
`, cluster.ListenAddrs()[0], partitions),
		"acme.yaml": "customer: acme\nprojections:\n  all: {fields: {id: id, state: state}, deliver: {out: {file: {path: out/acme.jsonl}}}}\n",
	})
	name := func(e int) string { return fmt.Sprint("E", e) }
	waits := func(e int) bool { return transport.PartitionOf([]byte(name(e)), partitions) == stuck }
	send := func(from, to int) {
		var records []*kgo.Record
		for round := from; round < to; round++ {
			for e := range entities {
				records = append(records, &kgo.Record{Key: []byte(name(e)), Value: fmt.Appendf(nil, `{"id":%q,"state":"r%d"}`, name(e), round)})
			}
		}
		require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	}
	// passed waits for the states of a number of rounds of all other entities, and of before
	// rounds of those that wait.
	passed := func(to, before int) {
		t.Helper()
		harness.Eventually(t, "the other partitions' events", func() error {
			got := p.Whole("out/acme.jsonl")
			for e := range entities {
				n := to
				if waits(e) {
					n = before
				}
				var want []string
				for round := range n {
					want = append(want, fmt.Sprint("r", round))
				}
				if states := harness.States(got, name(e)); !slices.Equal(states, want) && len(states)+len(want) > 0 {
					return fmt.Errorf("%s has %v, want %v", name(e), states, want)
				}
			}
			return nil
		})
	}
	run := p.Start("run")
	run.Ready(200)
	send(0, 1)
	passed(1, 1)

	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "weir.inbox", Partitions: []int32{stuck}, Err: kerr.NotLeaderForPartition, Count: -1})
	send(1, 10)
	passed(10, 1)
	send(10, 20)
	passed(20, 1)
	keepsOffsets(t, client, entities, name, waits)

	run.Kill()
	run = p.Start("run")
	send(20, rounds)
	passed(rounds, 1)
	fault.Remove()
	passed(rounds, rounds)
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	p.Drain()
	passed(rounds, rounds)
}

// keepsOffsets checks that the source's offsets stay before the oldest events of round 1 that wait.
func keepsOffsets(t *testing.T, client *kgo.Client, entities int, name func(int) string, waits func(int) bool) {
	t.Helper()
	committed, err := kadm.NewClient(client).FetchOffsets(t.Context(), "weir.source.events")
	require.NoError(t, err)
	oldest, count := map[int32]int64{}, map[int32]int64{} // by partition of the source
	for round := range 2 {
		for e := range entities {
			from := transport.PartitionOf([]byte(name(e)), 3)
			if _, known := oldest[from]; round > 0 && waits(e) && !known {
				oldest[from] = count[from]
			}
			count[from]++
		}
	}
	require.NotEmpty(t, oldest)
	committed.Each(func(o kadm.OffsetResponse) {
		if first, waits := oldest[o.Partition]; waits {
			require.LessOrEqual(t, o.At, first, "the offset of partition %d stays before the oldest event that waits", o.Partition)
		}
	})
}
