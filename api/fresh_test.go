package api_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connectHTTP2 sends first, then again every tenth of a second.
func connectHTTP2(t *testing.T, address string, config *tls.Config, first, again func(*http2.Framer) error) net.Conn {
	conn, err := tls.Dial("tcp", address, config)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(bound)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings())
	require.NoError(t, first(framer))
	stop := make(chan struct{})
	var drip sync.WaitGroup
	drip.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if again(framer) != nil {
					return
				}
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); drip.Wait(); conn.Close() })
	return conn
}

// An HTTP/2 connection without a whole request ends with the time for headers, not
// with that for idle connections; one with a request stays.
func TestHTTP2ConnectionsBeginARequest(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	t.Parallel()
	a, files := certified(t)
	s, _ := newServer(t, api.Options{})
	limits := api.Limits{Header: 3 * time.Second, Read: 10 * bound, Idle: 10 * bound, Patience: 10 * bound, HeaderBytes: unhurried.HeaderBytes, Connections: 100}
	address := listen(t, api.ListenOptions{Files: files, Reread: func(error) {}, Limits: limits}, s)
	headers := func(token string) []byte {
		var block strings.Builder
		e := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", "/v1/sources/orders/events"}, {":authority", "x"}, {"authorization", "Bearer " + token}} {
			require.NoError(t, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
		}
		return []byte(block.String())
	}
	connect := func(t *testing.T, first, again func(*http2.Framer) error) net.Conn {
		return connectHTTP2(t, address, &tls.Config{RootCAs: a.pool(), NextProtos: []string{"h2"}}, first, again)
	}
	nothing := func(*http2.Framer) error { return nil }
	ping := func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }
	begin := func(token string, headersEnd bool) func(f *http2.Framer) error {
		return func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers(token), EndHeaders: headersEnd})
		}
	}
	for name, c := range map[string]struct{ first, again func(*http2.Framer) error }{
		"silence":                     {nothing, nothing},
		"pings":                       {nothing, ping},
		"headers without an end":      {begin("alice", false), nothing},
		"empty continuations":         {begin("alice", false), func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) }},
		"no token, unfinished body":   {begin("mallory", true), nothing},
		"no token, a body that drips": {begin("mallory", true), func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := io.Copy(io.Discard, connect(t, c.first, c.again))
			var slow net.Error
			assert.False(t, errors.As(err, &slow) && slow.Timeout(), "the server keeps the connection")
		})
	}
	t.Run("a request", func(t *testing.T) {
		t.Parallel()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: bound}
		var connections []string
		for range 2 {
			r, err := http.NewRequest(http.MethodPost, "https://"+address+"/v1/sources/orders/events", strings.NewReader("{}"))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer alice")
			resp, err := client.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode)
			connections = append(connections, resp.Header.Get("Connection"))
			<-time.After(2 * limits.Header)
		}
		require.Equal(t, []string{"", ""}, connections)
	})
}

// A handler that answers before the body has ended does not wait for it.
func TestUnfinishedBodiesAreNotAwaited(t *testing.T) {
	t.Parallel()
	w := &world{t: t, address: listen(t, api.ListenOptions{Limits: api.Limits{
		Header: 10 * bound, Read: 10 * bound, Idle: 10 * bound, Patience: bound, HeaderBytes: unhurried.HeaderBytes, Connections: 10,
	}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		if r.URL.Path != "/silent" {
			http.Error(w, "no", http.StatusUnauthorized)
		}
	}))}
	for _, path := range []string{"/", "/silent"} {
		for _, body := range []string{"Content-Length: 10\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{"} {
			assert.NotEmpty(t, statusOf(w.send("POST "+path+" HTTP/1.1\r\nHost: x\r\n"+body)), path)
		}
	}
	// A client that sends all of it keeps the connection.
	c := w.dial()
	for range 2 {
		_, err := io.WriteString(c, "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		require.NoError(t, err)
		piece := make([]byte, 4<<10)
		n, err := c.Read(piece)
		require.NoError(t, err)
		require.NotContains(t, string(piece[:n]), "close")
	}
}

// A listener leaves descriptors to the rest of the process.
func TestConnectionsFollowTheDescriptors(t *testing.T) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	few := before
	few.Cur = 400
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }()
	most := api.MostConnections()
	require.Equal(t, 100, most)
	address := listen(t, api.ListenOptions{Limits: unhurried}, http.NotFoundHandler())
	w := &world{t: t, address: address}
	for range most {
		w.dial()
	}
	// The next connection waits for a place and does not take a descriptor of the process.
	waiting := w.dial()
	_, err := io.WriteString(waiting, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, waiting.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = waiting.Read(make([]byte, 1))
	var slow net.Error
	require.ErrorAs(t, err, &slow)
}
