package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

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
