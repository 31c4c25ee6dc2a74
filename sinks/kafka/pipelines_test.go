package kafka

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// Two pipelines have the names of the service and the topic in common, and the same changes
// at the same positions, so the same keys. Neither fences the other nor skips records that
// the other wrote; a successor of each finds its own.
func TestPipelinesShareATopic(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	log := newTopic(t, brokers, prefix+"pipelines", topicMaxBytes)
	changes := numbered(service, 0, 1, 10)
	byPipeline := func() map[string]int {
		n := map[string]int{}
		for _, r := range log.records(t) {
			for _, h := range r.Headers {
				if h.Key == PipelineHeader {
					n[string(h.Value)]++
				}
			}
		}
		return n
	}
	var mark [2]string
	var both [2]*Sink
	of := func(i int) Options {
		return Options{Client: newClient(t, brokers, nil), Topic: log.topic, Pipeline: fmt.Sprint("weir.", i)}
	}
	for i := range both {
		both[i] = resumed(t, of(i), 0, saved{at: 1})
		mark[i], _ = both[i].Bookmark(0)
	}
	for n := range changes {
		for i := range both {
			require.NoError(t, both[i].Write(t.Context(), changes[n:n+1]))
		}
	}
	require.Equal(t, map[string]int{"weir.0": len(changes), "weir.1": len(changes)}, byPipeline())
	next := resumed(t, of(0), 0, saved{1, mark[0]})
	require.NoError(t, next.Write(t.Context(), changes))
	require.EqualValues(t, len(changes), next.Found())
	require.Error(t, both[0].Write(t.Context(), numbered(service, 0, 10, 11)), "its own predecessor is fenced")
	require.NoError(t, both[1].Write(t.Context(), numbered(service, 0, 10, 11)), "the other pipeline's writer is not")
	require.Equal(t, map[string]int{"weir.0": len(changes), "weir.1": len(changes) + 1}, byPipeline())
}
