package recovery

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// I1, I2: the state file is restored, and is older than the brokers' logs.
func TestStateFileRestoredBesideTheBrokersData(t *testing.T) {
	t.Parallel()
	hook := harness.NewReceiver(t)
	p := harness.SimpleOnBrokers(t, "session_timeout: 1s", "", map[string]string{"file": harness.FileSink("file"), "hook": harness.PatientHookSink(hook)})
	agree := func() {
		t.Helper()
		want := p.Expected("file", "hook")
		require.NoError(t, oracle.CheckLog(want, "file/all@out", p.Records("out/file.jsonl")))
		require.NoError(t, oracle.CheckAttempts(want, "hook/all@out", hook.Received()))
		require.NoError(t, oracle.CheckState(want, "hook/all@out", oracle.Newest(hook.Received())))
	}
	copyState := func(from, to string) {
		old, err := filepath.Glob(p.Path(filepath.Join(to, "state.db*")))
		require.NoError(t, err)
		for _, name := range old {
			require.NoError(t, os.Remove(name))
		}
		all, err := filepath.Glob(p.Path(filepath.Join(from, "state.db*")))
		require.NoError(t, err)
		require.NotEmpty(t, all)
		for _, name := range all {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			p.Write(filepath.Join(to, filepath.Base(name)), string(text))
		}
	}
	p.Append("events.jsonl", harness.Many(entities, 0, 3))
	p.Drain()
	copyState("data", "backup")
	p.Append("events.jsonl", harness.Many(entities, 3, 6))
	p.Drain()
	agree()
	before := len(hook.Received())

	copyState("backup", "data")
	again := p.Start("run --until-idle")
	again.Ok()
	require.Contains(t, again.Log.String(), "event=store.restored")
	require.Greater(t, len(hook.Received()), before, "what the store forgot is delivered again")
	agree()
	p.Append("events.jsonl", harness.Many(entities, 6, 7))
	again = p.Start("run --until-idle")
	again.Ok()
	require.NotContains(t, again.Log.String(), "event=store.restored")
	agree()
	require.Empty(t, p.Letters())
}

// I1: the one file of a process without brokers is restored, logs and state, over the
// present one or in its place. Events ingested since are read again from their
// source, under versions above all that the target has seen, so the target takes it.
func TestFileOfLogsAndStatePutBack(t *testing.T) {
	t.Parallel()
	const said = "the state file is a backup"
	for name, put := range map[string]func(t *testing.T, path string, backup []byte){
		"over the one that is there": func(t *testing.T, path string, backup []byte) {
			require.NoError(t, os.WriteFile(path, backup, 0o600))
		},
		"in its place": func(t *testing.T, path string, backup []byte) {
			require.NoError(t, os.WriteFile(path+".backup", backup, 0o600))
			require.NoError(t, os.Rename(path+".backup", path))
		},
		"in a folder without a note": func(t *testing.T, path string, backup []byte) {
			require.NoError(t, os.WriteFile(path, backup, 0o600))
			require.NoError(t, os.Remove(path+".note"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := harness.NewReceiver(t)
			p := harness.Simple(t, "", map[string]string{"hook": harness.PatientHookSink(hook)})
			p.Append("events.jsonl", harness.Many(entities, 0, 3))
			p.Drain()
			backup, err := os.ReadFile(p.Path("data/state.db"))
			require.NoError(t, err)
			require.NoFileExists(t, p.Path("data/state.db-wal"), "the copy is the whole of it")
			p.Append("events.jsonl", harness.Many(entities, 3, 6))
			again := p.Start("run --until-idle")
			again.Ok()
			require.NotContains(t, again.Log.String(), said)
			before := hook.Received()

			put(t, p.Path("data/state.db"), backup)
			p.Append("events.jsonl", harness.Many(entities, 6, 7))
			again = p.Start("run --until-idle")
			again.Ok()
			require.Contains(t, again.Log.String(), said)
			after := hook.Received()[len(before):]
			require.NotEmpty(t, after)
			highest := map[string]uint64{}
			for _, r := range before {
				highest[r.Entity] = max(highest[r.Entity], r.Version)
			}
			for _, r := range after {
				require.Greater(t, r.Version, highest[r.Entity], "a version that the target knows is not given again")
			}
			newest := oracle.Newest(hook.Received())
			require.Len(t, newest, entities)
			for _, r := range newest {
				require.Equal(t, "r6", harness.StateOf(r))
			}
			require.Empty(t, p.Letters())
			again = p.Start("run --until-idle")
			again.Ok()
			require.NotContains(t, again.Log.String(), said, "it is this process's file now")
		})
	}
}
