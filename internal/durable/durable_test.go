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
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 { // nobody else can give a file away
		uid, gid = 12, 34
	}
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Replace(path, []byte("1"), 0o600))
	require.NoError(t, os.Chown(path, uid, gid))
	require.NoError(t, Replace(path, []byte("2"), 0o600))
	info, err := os.Stat(path)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.Equal(t, []uint32{uint32(uid), uint32(gid)}, []uint32{owner.Uid, owner.Gid})
}
