package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Two embedded pipelines have the names of a service and of its topic in common. Both
// deliver everything while both run, and neither ends the other's writers.
func TestTwoPipelinesOnOneTopic(t *testing.T) {
	t.Parallel()
	const entities, rounds = 10, 10
	brokers, prefix := servers.Kafka(t)
	topic := prefix + "out"
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, nil, topic)
	require.NoError(t, err)
	sink := fmt.Sprintf("{kafka: {brokers: [%q], topic: %q}}", brokers[0], topic)
	var pipelines [2]harness.Project
	var runs [2]*harness.Process
	for i := range pipelines {
		pipelines[i] = harness.Simple(t, "", map[string]string{"acme": sink})
		runs[i] = pipelines[i].Start("run")
		runs[i].Ready(200)
	}
	of := map[string]map[string]int{} // deliveries of each state, by pipeline
	for round := range rounds {
		for _, p := range pipelines {
			p.Append("events.jsonl", harness.Many(entities, round, round+1))
		}
		for n := 0; n < len(pipelines)*entities; {
			fetches := client.PollFetches(t.Context())
			require.NoError(t, fetches.Err())
			fetches.EachRecord(func(r *kgo.Record) {
				n++
				for _, h := range r.Headers {
					if h.Key == "weir-pipeline" {
						by := of[string(h.Value)]
						if by == nil {
							by = map[string]int{}
							of[string(h.Value)] = by
						}
						by[fmt.Sprint(string(r.Key), " r", round)]++
					}
				}
			})
		}
	}
	require.Len(t, of, len(pipelines))
	for _, by := range of {
		require.Len(t, by, entities*rounds, "each pipeline delivers each change, once")
	}
	for _, run := range runs {
		run.Terminate()
		run.Ok()
		require.NotContains(t, run.Log.String(), "INVALID_PRODUCER_EPOCH")
	}
}

// A state file without brokers is replaced by a new one, while the source's offsets stay
// with the broker: the new one reads the topic from its start.
func TestNewStateReadsATopicFromItsStart(t *testing.T) {
	t.Parallel()
	for _, records := range []int{1, 1000} {
		t.Run(fmt.Sprint("frame_records ", records), func(t *testing.T) {
			f := newFeed(t, "crm.events", "    entity: id")
			main := f.Read("weir.yaml")
			f.Write("weir.yaml", harness.ReplaceOnce(t, main, "topic: crm.events", fmt.Sprint("topic: crm.events, frame_records: ", records)))
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
