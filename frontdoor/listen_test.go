package frontdoor_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/frontdoor"
	"github.com/stretchr/testify/require"
)

// unhurried limits no client that a test does not mean to be slow, however busy
// the machine is.
var unhurried = frontdoor.Limits{
	Header: bound, Read: bound, Idle: bound, HeaderBytes: frontdoor.DefaultLimits.HeaderBytes, Connections: frontdoor.DefaultLimits.Connections,
}

// listen serves h on a loopback address until the test ends; then no request
// may be left.
func listen(t *testing.T, o frontdoor.ListenOptions, h http.Handler) (address string) {
	t.Helper()
	o.Name, o.Address, o.Logger = "test", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	if o.Limits == (frontdoor.Limits{}) {
		o.Limits = unhurried
	}
	l, err := frontdoor.Listen(o, h)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l.Addr().String()
}

// What browsers are to know stands in every answer, HSTS where there is TLS.
func TestAnswersAreHardened(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "ca")
	dir := t.TempDir()
	files := &frontdoor.Certificates{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	install(t, files, a.leaf("one"))
	for scheme, o := range map[string]frontdoor.ListenOptions{"http": {}, "https": {Files: files, Reread: func(error) {}}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}}
		resp, err := (&http.Client{Transport: transport, Timeout: bound}).Get(scheme + "://" + listen(t, o, http.NotFoundHandler()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		transport.CloseIdleConnections()
		require.Equal(t, "same-origin", resp.Header.Get("Cross-Origin-Resource-Policy"))
		require.Equal(t, scheme == "https", resp.Header.Get("Strict-Transport-Security") != "")
	}
}
