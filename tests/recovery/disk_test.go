package recovery

import (
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// damage turns bits in all pages of the state file but the first ones.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	const page = 4096
	for at := int64(2*page + 1000); at < info.Size(); at += page {
		var b [1]byte
		_, err := f.ReadAt(b[:], at)
		require.NoError(t, err)
		b[0] ^= 4
		_, err = f.WriteAt(b[:], at)
		require.NoError(t, err)
	}
}

// I8: bits that the disk turned in the state file end the process, which names the
// damage and the remedy, at its start or while it runs.
func TestADamagedStateFileEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"at its start": false, "while it runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := harness.NewReceiver(t)
			p := harness.Simple(t, "", map[string]string{"hook": harness.PatientHookSink(hook)})
			p.Append("events.jsonl", harness.Many(entities, 0, 3))
			p.Drain()
			var pr *harness.Process
			if running {
				pr = p.Start("run")
				pr.Says("event=process.running")
				damage(t, p.Path("data/state.db"))
				p.Append("events.jsonl", harness.Many(entities, 3, 6))
			} else {
				damage(t, p.Path("data/state.db"))
				pr = p.Start("run")
			}
			require.Equal(t, 1, pr.Wait())
			said := pr.Log.String()
			require.Contains(t, said, "the file is damaged")
			require.Contains(t, said, "state.db, page ")
			require.Contains(t, said, "restore a backup of the state file")
		})
	}
}
