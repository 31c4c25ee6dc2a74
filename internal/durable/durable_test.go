package durable

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What root replaces stays readable for the one whose file it is.
func TestReplaceKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Replace(path, []byte("1"), 0o600))
	require.NoError(t, os.Chown(path, 12, 34))
	require.NoError(t, Replace(path, []byte("2"), 0o600))
	info, err := os.Stat(path)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.Equal(t, []uint32{12, 34}, []uint32{owner.Uid, owner.Gid})
}
