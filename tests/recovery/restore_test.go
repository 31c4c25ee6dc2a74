//go:build verify

package recovery

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// backup is a physical copy of a PostgreSQL server.
type backup struct {
	t            testing.TB
	server       *servers.Server
	data, copied string
}

// takeBackup stops the server, copies its data folder, and starts it again.
func takeBackup(t testing.TB, server *servers.Server) backup {
	b := backup{t: t, server: server, copied: filepath.Join(t.TempDir(), "copy")}
	conn, err := pgx.Connect(t.Context(), server.Address)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&b.data))
	require.NoError(t, conn.Close(t.Context()))
	server.Stop()
	b.copy(b.data, b.copied)
	server.Start()
	return b
}

// restore puts the copy in the place of what the server holds now.
func (b backup) restore() {
	b.server.Kill()
	require.NoError(b.t, os.RemoveAll(b.data))
	b.copy(b.copied, b.data)
	b.server.Start()
}

// copy keeps owner and mode, which PostgreSQL insists on.
func (b backup) copy(from, to string) {
	out, err := exec.CommandContext(b.t.Context(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(b.t, err, string(out))
}

// I1, I2: the store is put back while no process runs. Kafka's group offsets,
// the inbox and the gate are ahead of it.
func TestStoreRestoredWhileDown(t *testing.T) {
	t.Parallel()
	server := servers.StartOwn(t, "postgres")
	w := newWorld(t, server.Address, 100)
	w.say(3)
	w.drain()
	require.NoError(t, w.check())
	b := takeBackup(t, server)
	w.say(4)
	w.drain()
	require.NoError(t, w.check())
	require.Zero(t, w.repeated())

	b.restore()
	again := w.drain()
	require.Contains(t, again.Log.String(), "the store is behind the inbox")
	require.NoError(t, w.check(), "no second row, the same keys and bytes")
	require.NotZero(t, w.repeated(), "what the store forgot is delivered again")
	require.NotContains(t, w.drain().Log.String(), "the store is behind the inbox", "once is enough")

	w.say(1)
	w.drain()
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// I1, I2, I8: a fail-over under a running process: the server goes away and
// comes back older. Nothing new comes that could wake anybody up.
func TestStoreRestoredUnderARunningProcess(t *testing.T) {
	t.Parallel()
	server := servers.StartOwn(t, "postgres")
	w := newWorld(t, server.Address, 100)
	run := w.run()
	w.say(3)
	w.agree(run)
	b := takeBackup(t, server)
	w.say(4)
	w.agree(run)
	require.Zero(t, w.repeated())

	b.restore()
	run.Says("reading the inbox again")
	run.Says("the store is behind the inbox")
	harness.Eventually(t, "everything is decided and delivered again", func() error {
		return harness.Want(w.repeated() >= entities, true)
	})
	run.Ready(200)
	w.say(1)
	w.agree(run)
	stop(run)
	require.Contains(t, w.drain().Out.String(), `"events_read": 0,`)
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// I1, I2: a fail-over that loses the last commits, under load.
func TestFailOverWithoutTheLastCommits(t *testing.T) {
	t.Parallel()
	server := servers.StartOwn(t, "postgres")
	w := newWorld(t, server.Address, 100)
	run := w.run()
	w.say(2)
	w.agree(run)
	for n := range 2 {
		w.say(5)
		b := takeBackup(t, server)                 // a standby that gets no further than here
		decided := run.Metric("weir_events_total") // before they are sent: they may be decided at once
		w.say(5)
		harness.Eventually(t, fmt.Sprint("commits that will be lost, round ", n), func() error {
			return harness.Want(run.Metric("weir_events_total") > decided, true)
		})
		b.restore()
		w.say(2)
	}
	w.agree(run)
	run.Says("reading the inbox again")
	run.Ready(200)
	stop(run)
	w.drain()
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// I1: the inbox does not reach back to where a restored store stands. What is
// gone is named, and the rest goes on; everything that customers have got
// before stays as it is.
func TestInboxExpiredBehindARestoredStore(t *testing.T) {
	t.Parallel()
	server := servers.StartOwn(t, "postgres")
	w := newWorld(t, server.Address, 100)
	w.say(3)
	w.drain()
	b := takeBackup(t, server)
	marks, err := w.Admin.ListEndOffsets(t.Context(), w.inbox())
	require.NoError(t, err)
	// If the first one of two equal events is gone, the other is the change.
	w.plain = true
	w.say(4)
	w.drain()
	require.NoError(t, w.check())

	w.keep()
	b.restore()
	gone := w.removeRecords(w.inbox(), 3)
	again := w.drain()
	gone.Each(func(o kadm.Offset) {
		mark, _ := marks.Lookup(o.Topic, o.Partition)
		require.Contains(t, again.Log.String(), fmt.Sprintf("partition=%d wanted_offset=%d going_on_at=%d", o.Partition, mark.Offset, o.At))
	})
	require.NoError(t, w.check())

	// Nothing is left at all: the watermark stands before it, yet there is
	// nothing to wait for.
	b.restore()
	w.removeRecords(w.inbox(), 0)
	again = w.drain()
	require.Contains(t, again.Log.String(), "records that were still wanted are gone from the topic")
	w.say(1)
	w.drain()
	require.NoError(t, w.check(), "what comes after it is decided as ever")
	require.Empty(t, w.Letters())
}
