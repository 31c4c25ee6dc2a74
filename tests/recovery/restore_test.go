//go:build verify

package recovery

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// restore replaces the server's data by the copy.
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

// I1, I2: the store is restored while no process runs. Kafka's group offsets,
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
	require.Contains(t, again.Log.String(), "event=store.restored")
	require.NoError(t, w.check(), "no second row, the same keys and bytes")
	require.NotZero(t, w.repeated(), "what the store forgot is delivered again")
	require.NotContains(t, w.drain().Log.String(), "event=store.restored", "once is enough")

	w.say(1)
	w.drain()
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// reconfigure starts later processes with another configuration: its
// documents have one more field, "again".
func (w *world) reconfigure() {
	text := fmt.Sprintf(customer, w.Target, harness.PatientHookSink(w.Receiver), w.Prefix)
	w.Write("acme.yaml", harness.ReplaceOnce(w.t(), text, "state: state}", "state: state, again: state}"))
}

// I1, I5: the store is restored to before events that were decided and delivered,
// and they are decided again under another configuration. The mistake that this
// catches: the same version had other content, and a target that compares versions
// kept the content of the earlier configuration.
func TestStoreRestoredToBeforeAnotherConfiguration(t *testing.T) {
	t.Parallel()
	server := servers.StartOwn(t, "postgres")
	w := newWorld(t, server.Address, 100)
	w.say(3)
	w.drain()
	b := takeBackup(t, server)
	w.say(2)
	w.drain()
	require.NoError(t, w.check())
	b.restore()

	w.reconfigure()
	again := w.drain()
	require.Contains(t, again.Log.String(), "event=inbox.generation")
	rows := w.Rows("acme_current", current, "entity")
	require.Len(t, rows, entities)
	for _, row := range rows {
		require.Contains(t, string(row.Doc), `"again"`, "what is decided last is what the target has")
	}
	require.NotContains(t, w.drain().Log.String(), "event=inbox.generation", "once is enough")

	// Back once more, to before that generation. The mistake that this catches: the first
	// one went on, and the table turned its versions away.
	b.restore()
	w.say(1)
	require.Contains(t, w.drain().Log.String(), "event=inbox.generation")
	w.hasLatest(3)
}

// I1, I5: the store goes back to before the configuration that two processes work
// under, as after a fail-over. One of them makes it active again. The mistake that this
// catches: it got its number again, so the other took all that the store forgot for
// decided under it, and repeated the decisions of the earlier configuration,
// under the same versions.
func TestStoreRestoredUnderTwoProcessesToBeforeTheirConfiguration(t *testing.T) {
	t.Parallel()
	server := servers.StartOwn(t, "postgres")
	w := newWorld(t, server.Address, 100)
	w.say(2)
	w.drain()
	b := takeBackup(t, server)
	w.say(1)
	w.drain()

	w.reconfigure()
	again := func(rows int) {
		harness.Eventually(t, fmt.Sprint(rows, " rows of the later configuration"), func() error {
			found := 0
			for _, row := range w.Rows("acme_current", current, "entity") {
				if strings.Contains(string(row.Doc), `"again"`) {
					found++
				}
			}
			if found < rows {
				return fmt.Errorf("%d have it", found)
			}
			return nil
		})
	}
	decider, other := w.Start("run"), w.Start("run")
	decider.Ready(200)
	other.Ready(200)
	for from := range 3 { // every partition has something that the later one decided last
		w.send(w.Kafka, w.share(from, 4))
	}
	again(entities * 3 / 4)
	require.NoError(t, decider.Cmd.Process.Signal(syscall.SIGSTOP))
	b.restore()
	other.Says("event=revision.reactivated")
	require.NoError(t, decider.Cmd.Process.Signal(syscall.SIGCONT))
	again(entities)
	stop(decider)
	stop(other)
	require.Empty(t, w.Letters())
}

// hasLatest checks that the table has the last document that was sent for each entity, of a generation of the inbox.
func (w *world) hasLatest(generation uint64) {
	t, last := w.t(), map[string]string{}
	for _, records := range w.sent {
		serial := map[string]int64{}
		for p, r := range records {
			if p.offset >= serial[string(r.Key)] {
				serial[string(r.Key)], last[string(r.Key)] = p.offset, string(r.Value)
			}
		}
	}
	rows := w.Rows("acme_current", current, "entity")
	require.Len(t, rows, entities)
	for _, row := range rows {
		require.Equal(t, generation, row.Version>>48)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(row.Doc, &doc))
		delete(doc, "again")
		is, err := json.Marshal(doc)
		require.NoError(t, err)
		require.JSONEq(t, last[row.Entity], string(is))
	}
	require.Empty(t, w.Letters())
}

// I1, I5: a fresh store, with topics of its own, before the tables of an earlier one.
// The mistake that this catches: its versions began at generation 1, and the tables
// refused all versions not above their own, without a word.
func TestAFreshStoreBeforeOldTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	w.say(5)
	w.drain()
	require.NoError(t, w.check())
	w.Write("weir.yaml", strings.NewReplacer(w.Store, servers.Postgres(t), w.Prefix+"weir", w.Prefix+"fresh").Replace(w.yaml))
	w.send(w.Kafka, w.round())
	fresh := w.drain()
	require.Contains(t, fresh.Log.String(), "event=inbox.generation")
	w.hasLatest(2)
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
	before := w.repeated() // the store was away for the backup

	b.restore()
	run.Says("event=store.restored")
	harness.Eventually(t, "everything is decided and delivered again", func() error {
		return harness.Want(w.repeated() >= before+entities, true)
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
	run.Says("event=store.restored")
	run.Ready(200)
	stop(run)
	w.drain()
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// I1: the inbox does not reach back to a restored store's watermark. The lost
// records are named, and the rest continues; everything that customers have got
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
		require.Contains(t, again.Log.String(), fmt.Sprintf("partition=%d wanted_offset=%d resumed_at=%d", o.Partition, mark.Offset, o.At))
	})
	require.NoError(t, w.check())

	// Nothing is left at all: the watermark is before it, yet there is
	// nothing to wait for.
	b.restore()
	w.removeRecords(w.inbox(), 0)
	run := w.run()
	run.Says("event=topic.records_lost")
	stop(run)
	w.say(1)
	w.drain()
	require.NoError(t, w.check(), "what comes after it is decided as ever")
	require.Empty(t, w.Letters())
}
