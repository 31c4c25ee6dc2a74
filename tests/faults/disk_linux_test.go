package faults

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallDisk mounts a file system of its own with these options.
func smallDisk(t *testing.T, options string) string {
	dir := t.TempDir()
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV)
	require.NoError(t, syscall.Mount("weir-faults", dir, "tmpfs", flags, options), "needs root")
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}
