package harness

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// FreeAddress is a loopback address for a server that must be told its port.
// The port is reserved until the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, release := hold(t, "127.0.0.1:0")
	t.Cleanup(release)
	return address
}

// hold keeps a port: it is bound without a listener, so connections are
// refused, and the system hands it out neither to listeners on any port nor
// to clients. A listener on this very port gets it (SO_REUSEADDR, which Go
// sets for listeners).
func hold(t testing.TB, address string) (held string, release func()) {
	t.Helper()
	want, err := netip.ParseAddrPort(address)
	require.NoError(t, err)
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(want.Port()), Addr: want.Addr().As4()}), address)
	got, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	at, _ := got.(*syscall.SockaddrInet4)
	require.NotNil(t, at)
	return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String(), func() { _ = syscall.Close(fd) }
}
