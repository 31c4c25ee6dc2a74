//go:build linux

package sqlite

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// A commit whose write fails in the middle, as on a broken disk, is not acknowledged
// and leaves nothing that this process or the next one sees. When the disk works
// again the same append succeeds, at the same place.
func TestFailedCommitIsNotAcknowledged(t *testing.T) {
	s, path := migrated(t)
	l := openLog(t, s, 2)
	require.NoError(t, l.Append(t.Context(), frameOf("0")))
	// More than go test's own log, which has the limit, too.
	require.NoError(t, l.Append(t.Context(), []LogFrame{{Partition: 1, Records: 1, Body: make([]byte, 4<<20)}}))

	// No file may grow beyond the size that the log of the database has, and a half
	// of a page: the write of the commit fails with EFBIG.
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limited := before
	limited.Cur = uint64(info.Size()) + 2000
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited))
	restored := false
	restore := func() {
		if !restored {
			restored = true
			require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
		}
	}
	defer restore()
	var failures []error
	for range 3 {
		failures = append(failures, l.Append(t.Context(), frameOf("1")))
	}
	seen := bodies(t, l, 0)
	end, _ := l.End(0)
	restore()
	require.Equal(t, store.Unknown, store.ClassOf(failures[0]), "%v", failures[0])
	for _, err := range failures {
		require.Error(t, err)
		require.Contains(t, []store.Class{store.Unknown, store.Retry}, store.ClassOf(err), "%v", err)
	}
	require.Equal(t, []string{"0"}, seen)
	require.EqualValues(t, 1, end, "nobody is woken for it")
	require.NoError(t, l.Append(t.Context(), frameOf("1")))
	require.Equal(t, []string{"0", "1"}, bodies(t, l, 0))

	other := open(t, path)
	found, err := other.FindLog(t.Context(), "log")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint([]string{"0", "1"}), fmt.Sprint(bodies(t, found, 0)))
}
