package api_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// unhurried limits no client that a test does not mean to be slow, however busy
// the machine is.
var unhurried = api.Limits{
	Header: bound, Read: bound, Idle: bound, Patience: bound, HeaderBytes: api.DefaultLimits.HeaderBytes, Connections: api.DefaultLimits.Connections,
}

// listen serves h on a loopback address until the test ends; then no request
// may be left.
func listen(t *testing.T, o api.ListenOptions, h http.Handler) (address string) {
	t.Helper()
	o.Name, o.Address, o.Logger = "test", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	if o.Limits == (api.Limits{}) {
		o.Limits = unhurried
	}
	l, err := api.Listen(o, h)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l.Addr().String()
}

// Every answer has the headers for browsers, HSTS with TLS.
func TestAnswersAreHardened(t *testing.T) {
	t.Parallel()
	a, files := certified(t)
	for scheme, o := range map[string]api.ListenOptions{"http": {}, "https": {Files: files, Reread: func(error) {}}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}}
		resp, err := (&http.Client{Transport: transport, Timeout: bound}).Get(scheme + "://" + listen(t, o, http.NotFoundHandler()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		transport.CloseIdleConnections()
		require.Equal(t, "same-origin", resp.Header.Get("Cross-Origin-Resource-Policy"))
		require.Equal(t, scheme == "https", resp.Header.Get("Strict-Transport-Security") != "")
	}
}

// The listener's first frames limit the data in flight of an HTTP/2 connection.
func TestHTTP2IsBounded(t *testing.T) {
	t.Parallel()
	a, files := certified(t)
	address := listen(t, api.ListenOptions{Files: files, Reread: func(error) {}}, http.NotFoundHandler())
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: a.pool(), NextProtos: []string{"h2"}})
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(bound)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings())

	first, err := framer.ReadFrame()
	require.NoError(t, err)
	settings := first.(*http2.SettingsFrame)
	for id, most := range map[http2.SettingID]uint32{
		http2.SettingMaxConcurrentStreams: 64, http2.SettingInitialWindowSize: 64 << 10, http2.SettingMaxFrameSize: 1 << 20,
	} {
		value, told := settings.Value(id)
		require.True(t, told, id)
		require.LessOrEqual(t, value, most, id)
	}
	const initial = 65535 // of every connection
	for window := uint32(initial); window < 256<<10; {
		frame, err := framer.ReadFrame()
		require.NoError(t, err)
		if more, ok := frame.(*http2.WindowUpdateFrame); ok {
			require.Zero(t, more.StreamID)
			window += more.Increment
			require.LessOrEqual(t, window, uint32(256<<10))
		}
	}
}
