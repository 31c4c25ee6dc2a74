//go:build verify

package operate_test

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I7: a killed replay resumes from its last saved position: every entity is requested, and
// not all of them again.
func TestReplayGoesOnAfterAKill(t *testing.T) {
	const entities = 200
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprint("running ", running), func(t *testing.T) {
			t.Parallel()
			w := &world{Project: harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})}
			w.Append("events.jsonl", harness.Many(entities, 0, 1))
			w.Drain()
			if running {
				w.run = w.Start("run")
				w.run.Ready(200)
			}
			command := w.Start("replay --all --force --rate 4/s") // in portions of one
			w.inMiddle(5)
			if running {
				w.run.Kill() // it is the one that works
				require.Equal(t, 1, command.Wait(), "the command says that it was cut off")
				require.Contains(t, command.Log.String(), "broke off")
			} else {
				command.Kill()
			}
			w.run = nil
			before := w.jobs()[0]
			require.Equal(t, store.JobOpen, before.State)
			require.Less(t, before.Done, int64(entities))
			done := decode[result](t, w.say("replay --json --resume"))
			require.True(t, done.Resumed)
			require.Equal(t, before.ID, done.Job)
			require.EqualValues(t, entities, done.Entities)
			require.Equal(t, store.JobDone, w.jobs()[0].State)
			require.Contains(t, w.fails(1, "replay --resume"), "no unfinished replay")
			w.Drain()
			asked := 0
			for e := range entities {
				n := len(harness.States(w.Records("out/acme.jsonl"), fmt.Sprint("E", e)))
				require.GreaterOrEqual(t, n, 2, "E%d was sent again", e)
				asked += n - 1
			}
			require.LessOrEqual(t, asked, entities+1, "at most one portion twice")
		})
	}
}
