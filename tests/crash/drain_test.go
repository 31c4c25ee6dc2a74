package crash

import (
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I1: a process that dies behind its last commit leaves nothing to ingest and nothing to decide. Its
// changes are in the log alone; the next one that runs until it is idle is not idle before it has sent
// that, however long it waits for the partition.
func TestDrainOfTheLogAlone(t *testing.T) {
	for _, on := range []string{onPostgres, onSQLite} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			all := events()
			last := len(all) - 1
			w := newWorldOf(t, on, all[:last])
			// Kafka keeps the partitions for the dead for so long.
			w.Write("weir.yaml", harness.ReplaceOnce(t, w.Read("weir.yaml"), "session_timeout: 1s", "session_timeout: 5s"))
			w.drain()
			if on == onPostgres {
				w.send(all[last:])
			} else {
				w.writeSources(all)
			}
			e := w.command("", "run", "--until-idle", "--role", "ingest") // and its source knows that
			require.Zero(t, e.code, harness.Tail(e.log, 60))
			e = w.run(crash.DecideCommitted + ":1")
			require.True(t, e.diedAt(crash.DecideCommitted))
			w.drain()
			for sink, found := range w.compare() {
				require.True(t, found.zero(), "%s: %s", sink, strings.Join(found.notes, "; "))
			}
		})
	}
}
