//go:build verify

package recovery

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I1, I10: changes of a dead customer expire in the changes log. When the customer
// is back, Weir says which are gone, and sends every entity as it is now. The
// other services notice nothing.
func TestChangesExpiredUnderADeadSink(t *testing.T) {
	for name, worked := range map[string]bool{"that worked": true, "that had nothing so far: its place is that of the first change": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, servers.Postgres(t), 100)
			if !worked {
				w.Receiver.Down()
			}
			run := w.run()
			if worked {
				w.say(2)
				w.agree(run)
				w.Receiver.Down()
			}
			expires(w, run)
		})
	}
}

// expires has changes that the hook cannot take removed from the log.
func expires(w *world, run *harness.Process) {
	t := w.t()
	w.dropFrames(0) // all of it is delivered
	others := func(want oracle.Expected) error {
		return errors.Join(
			oracle.CheckState(want, current, oracle.Newest(w.Rows("acme_current", current, "entity"))),
			oracle.CheckLog(want, history, w.Rows("acme_history", history, "seq")),
			oracle.CheckLog(want, feed, w.Feed()),
		)
	}
	// Each of three is about entities of its own, so that all of them are wanted: nothing is left out for
	// something newer.
	for n := range 3 {
		w.send(w.Kafka, w.share(n, 3))
		harness.Eventually(t, "all is decided and the others have it", func() error {
			want, err := w.expected()
			if err != nil {
				return err
			}
			return others(want)
		})
	}
	stop(run)
	before := len(w.Receiver.Received())
	gone := w.dropFrames(1)

	w.Receiver.Up()
	run = w.run()
	for _, partition := range gone { // what was gone is decided again
		run.Says(fmt.Sprintf("stage=deliver event=repair.done service=%s partition=%d\n", hook, partition))
	}
	require.EqualValues(t, len(gone), run.Metric("weir_delivery_gaps_total"), "of the hook alone, once a partition")
	want, err := w.expected()
	require.NoError(t, err)
	harness.Eventually(t, "every entity is delivered as it is now", func() error {
		newest := oracle.Newest(w.Receiver.Received()[before:])
		for entity, changes := range want[hook] {
			last := changes[len(changes)-1]
			if got, ok := newest[entity]; !ok || string(got.Doc) != oracle.Text(last.Doc) || got.Version < last.Version {
				return fmt.Errorf("%s has %s, want %s", entity, got.Doc, oracle.Text(last.Doc))
			}
		}
		return nil
	})
	stop(run)
	require.NoError(t, others(want))
	w.say(1)
	w.drain()
	require.Empty(t, w.Letters())
}
