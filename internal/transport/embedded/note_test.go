package embedded_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// I5: a restored file is recognised by which file it is and how far its logs are, also
// after a kill.
func TestDetectRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const topic = "topic"
	// run lets a process append records, and returns what DetectRestore returned to it.
	run := func(records int, note bool) (why string, generation uint16) {
		w := open(t, path)
		require.NoError(t, w.Make(t.Context(), topic, 1))
		why, generation, err := w.DetectRestore(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.Note(7))
		for i := range records {
			require.NoError(t, w.Append(t.Context(), []transport.Record{{Topic: topic, Value: fmt.Append(nil, i)}}))
		}
		if note {
			require.NoError(t, w.Note(7))
		}
		require.NoError(t, w.Release())
		require.NoError(t, w.file.Close())
		return why, generation
	}
	sound := func(records int, note bool) {
		t.Helper()
		why, generation := run(records, note)
		require.Empty(t, why)
		require.EqualValues(t, 7, generation)
	}
	why, _ := run(3, true)
	require.Contains(t, why, "is not there")
	backup, err := os.ReadFile(path)
	require.NoError(t, err)
	sound(0, true)
	sound(2, true)
	sound(2, false) // killed before it could note anything
	sound(0, true)

	require.NoError(t, os.WriteFile(path, backup, 0o600))
	why, generation := run(0, true)
	require.Equal(t, "topic ends at offset 3 of partition 0, and once was at 7", why)
	require.EqualValues(t, 7, generation)
	sound(5, true)

	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Rename(path, path+".old")) // which keeps its inode
	require.NoError(t, os.WriteFile(path, now, 0o600))
	why, _ = run(0, true)
	require.Equal(t, "it is another file than the last process had", why)
	sound(0, true)

	content, err := os.ReadFile(path + ".note")
	require.NoError(t, err)
	for at := range content {
		turned := append([]byte(nil), content...)
		turned[at] ^= 1
		require.NoError(t, os.WriteFile(path+".note", turned, 0o600))
		w := open(t, path)
		require.NoError(t, w.Make(t.Context(), topic, 1))
		why, _, err := w.DetectRestore(t.Context())
		require.NoError(t, err)
		require.Contains(t, why, ".note is damaged", "byte %d", at)
		require.NoError(t, w.Release())
		require.NoError(t, w.file.Close())
	}
}
