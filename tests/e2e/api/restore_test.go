package api

import (
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I2: the store is restored to before some keys were used. The
// log is ahead of it: the events are in it, and are decided again; a client
// that sends its request again under its key gets another claim. The mistakes that
// this catches: the retry brings the old state back, after the newer one; other
// content under a key that was used is taken for new.
func TestAKeyHasOneEffectAfterARestore(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole pipeline")
	}
	t.Parallel()
	w := newWorld(t, onBrokers, "30d").start()
	w.id(w.post(w.ins[0], keyed("k0", "A", "s0")))
	w.wants(1)
	w.stop()
	backup, err := os.ReadFile(w.p.Path("data/state.db"))
	require.NoError(t, err)
	require.NoFileExists(t, w.p.Path("data/state.db-wal"), "the copy is the whole of it")

	w.start()
	q, batch := keyed("k1", "A", "s1"), request{path: "plain/events:batch", key: "k2", body: `[{"id":"A","state":"s2"},{"id":"A","state":"s3"}]`}
	first := w.id(w.post(w.ins[0], q))
	require.Equal(t, 202, w.post(w.ins[0], batch).status)
	w.id(w.post(w.ins[0], keyed("k4", "A", "s")))
	for i, s := range []string{"s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12"} {
		w.id(w.post(w.ins[0], order("e"+string(rune('a'+i)), "B", s)))
	}
	w.wants(14)
	w.stop()
	want := w.states("")
	require.Len(t, want, 14)

	require.NoError(t, os.WriteFile(w.p.Path("data/state.db"), backup, 0o600))
	for _, tail := range []string{"-wal", "-shm"} {
		require.NoError(t, os.RemoveAll(w.p.Path("data/state.db"+tail)))
	}
	w.start()
	again, err := w.crowd(q, func() []string { return []string{w.ins[0].Address("ingest")} })
	require.NoError(t, err)
	require.NotEqual(t, first, w.id(answer{status: 202, body: again}), "the ledger does not know it: the answer names the claim that it is in the inbox under")
	require.Equal(t, 202, w.post(w.ins[0], batch).status)
	w.id(w.post(w.ins[0], order("ea", "B", "s4"))) // more events of the source came since than the entity remembers
	other := keyed("k0", "A", "other")
	require.Equal(t, 422, w.post(w.ins[0], other).status, "what the backup holds is known")
	other.key = "k4"
	w.id(w.post(w.ins[0], other))
	w.id(w.post(w.ins[0], keyed("k3", "A", "end")))
	require.Equal(t, answer{202, again, true, ""}, w.post(w.ins[0], q), "the new claim's answer is kept")
	harness.Eventually(t, "the last state", func() error {
		records := w.p.Whole("out/acme.jsonl")
		return harness.Want(harness.StateOf(records[len(records)-1]), "end")
	})
	require.Equal(t, []string{"s0", "s1", "s2", "s3", "s", "end"}, harness.States(w.p.Whole("out/acme.jsonl"), "A"))
	w.stop()
	require.ElementsMatch(t, append(want, "end"), w.states(""), "deliveries that the store forgot are told by their keys")
	letters := w.p.Letters()
	require.Len(t, letters, 1)
	require.Equal(t, "key_conflict", letters[0].Code)
	require.Equal(t, "A", letters[0].Entity)
}
