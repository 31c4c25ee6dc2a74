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

// stuckInbox is a project whose inbox has four partitions, one of which may take nothing. Each of
// its entities goes through the states r0, r1, …
type stuckInbox struct {
	harness.Project
	t        *testing.T
	cluster  *kfake.Cluster
	entities []string
}

const stuckPartition = 1

// newStuckInbox makes a project of a source named events.
func newStuckInbox(t *testing.T, source string) *stuckInbox {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"), kfake.GroupMinSessionTimeout(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := &stuckInbox{t: t, cluster: cluster, Project: harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(`
kafka: {brokers: [%q], session_timeout: 5s, inbox: {partitions: 4}}
sources:
  events: %s
customers: [acme.yaml]
admin: {listen: "127.0.0.1:0"}
`, cluster.ListenAddrs()[0], source),
		"acme.yaml": "customer: acme\nprojections:\n  all: {fields: {id: id, state: state}, deliver: {out: {file: {path: out/acme.jsonl}}}}\n",
	})}
	for e := range 40 {
		s.entities = append(s.entities, fmt.Sprint("E", e))
	}
	return s
}

// waits reports whether the events of an entity are for the partition that takes nothing.
func (s *stuckInbox) waits(entity string) bool {
	return transport.PartitionOf([]byte(entity), 4) == stuckPartition
}

// stick lets the partition take nothing until the end.
func (s *stuckInbox) stick() (end func()) {
	return s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "weir.inbox", Partitions: []int32{stuckPartition}, Err: kerr.NotLeaderForPartition, Count: -1}).Remove
}

// passed waits for the states of a number of rounds of all other entities, and of before rounds of
// those that wait.
func (s *stuckInbox) passed(to, before int) {
	s.t.Helper()
	harness.Eventually(s.t, "the other partitions' events", func() error {
		got := s.Whole("out/acme.jsonl")
		for _, e := range s.entities {
			n := to
			if s.waits(e) {
				n = before
			}
			var want []string
			for round := range n {
				want = append(want, fmt.Sprint("r", round))
			}
			if states := harness.States(got, e); !slices.Equal(states, want) && len(states)+len(want) > 0 {
				return fmt.Errorf("%s has %v, want %v", e, states, want)
			}
		}
		return nil
	})
}

// I1, I4, I13: one partition of the inbox takes nothing. Its events wait, in their order
// and also over a kill; those of all other partitions pass, though every frame of the
// source has events of both. The mistake that this catches: all ingest stopped.
func TestPartitionOfTheInboxThatTakesNothing(t *testing.T) {
	t.Parallel()
	s := newStuckInbox(t, "{kafka: {topic: events, frame_records: 16}, entity: id}")
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.ListenAddrs()...), kgo.DefaultProduceTopic("events"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	const rounds = 30
	send := func(from, to int) {
		var records []*kgo.Record
		for round := from; round < to; round++ {
			for _, e := range s.entities {
				records = append(records, &kgo.Record{Key: []byte(e), Value: fmt.Appendf(nil, `{"id":%q,"state":"r%d"}`, e, round)})
			}
		}
		require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	}
	run := s.Start("run")
	run.Ready(200)
	send(0, 1)
	s.passed(1, 1)

	end := s.stick()
	send(1, 10)
	s.passed(10, 1)
	send(10, 20)
	s.passed(20, 1)
	keepsOffsets(t, client, s)

	run.Kill()
	run = s.Start("run")
	send(20, rounds)
	s.passed(rounds, 1)
	end()
	s.passed(rounds, rounds)
	run.Terminate()
	run.Ok()
	require.Empty(t, s.Letters())
	s.Drain()
	s.passed(rounds, rounds)
}

// keepsOffsets checks that the source's offsets stay before the oldest events of round 1 that wait.
func keepsOffsets(t *testing.T, client *kgo.Client, s *stuckInbox) {
	t.Helper()
	committed, err := kadm.NewClient(client).FetchOffsets(t.Context(), "weir.source.events")
	require.NoError(t, err)
	oldest, count := map[int32]int64{}, map[int32]int64{} // by partition of the source
	for round := range 2 {
		for _, e := range s.entities {
			from := transport.PartitionOf([]byte(e), 3)
			if _, known := oldest[from]; round > 0 && s.waits(e) && !known {
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
