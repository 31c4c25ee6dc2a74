package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bound is how long anything may take that must happen at all.
const bound = 60 * time.Second

// world is a server behind a listener, attacked over plain TCP.
type world struct {
	t        *testing.T
	server   *api.Server
	address  string
	smuggled atomic.Int64  // requests that only a misread of another one makes
	ended    chan struct{} // gets a value when /endless or /large found its client gone
}

func newWorld(t *testing.T, limits api.Limits, o api.Options) *world {
	t.Helper()
	s, _ := newServer(t, o)
	w := &world{t: t, server: s, ended: make(chan struct{}, 1)}
	s.Handle("GET /smuggled", auth.Any, func(http.ResponseWriter, *http.Request, auth.Principal) { w.smuggled.Add(1) })
	s.Handle("GET /endless", auth.Any, func(rw http.ResponseWriter, _ *http.Request, _ auth.Principal) {
		for piece := make([]byte, 64<<10); ; {
			if _, err := rw.Write(piece); err != nil {
				w.ended <- struct{}{}
				return
			}
		}
	})
	s.Handle("GET /large", auth.Any, func(rw http.ResponseWriter, _ *http.Request, _ auth.Principal) {
		_, err := rw.Write(make([]byte, 64<<20))
		assert.Error(t, err)
		w.ended <- struct{}{}
	})
	if limits.Header == 0 {
		limits.Header = unhurried.Header
	}
	if limits.Read == 0 {
		limits.Read = unhurried.Read
	}
	if limits.Idle == 0 {
		limits.Idle = unhurried.Idle
	}
	if limits.Patience == 0 {
		limits.Patience = unhurried.Patience
	}
	if limits.Connections == 0 {
		limits.Connections = unhurried.Connections
	}
	limits.HeaderBytes = unhurried.HeaderBytes
	w.address = listen(t, api.ListenOptions{Limits: limits}, s)
	return w
}

func (w *world) dial() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.address)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	require.NoError(w.t, c.SetDeadline(time.Now().Add(bound)))
	return c
}

// send writes bytes and returns all bytes received until the server closes the connection,
// which it may reset early.
func (w *world) send(text string) string {
	w.t.Helper()
	c := w.dial()
	_, _ = io.WriteString(c, text)
	return w.rest(c)
}

func (w *world) rest(c net.Conn) string {
	w.t.Helper()
	answer, err := io.ReadAll(c)
	if err != nil {
		require.NotErrorIs(w.t, err, context.DeadlineExceeded)
		var slow net.Error
		if assert.ErrorAs(w.t, err, &slow) {
			require.False(w.t, slow.Timeout(), "the server kept the connection; it had said %.200q", answer)
		}
	}
	return string(answer)
}

func statusOf(answer string) string {
	_, rest, _ := strings.Cut(answer, " ")
	return rest[:min(3, len(rest))]
}

// good asserts that an honest caller is served.
func (w *world) good(token string) {
	w.t.Helper()
	path := "/v1/sources/orders/events"
	if token == "bob" {
		path = "/v1/services/x/check"
	}
	r, err := http.NewRequest(http.MethodPost, "http://"+w.address+path, strings.NewReader(`{"honest":true}`))
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Timeout: bound, Transport: transport}).Do(r)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	require.Equal(w.t, http.StatusOK, resp.StatusCode)
}

const line = "POST /v1/sources/orders/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n"

const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n"

// Two readers of one connection must not see different requests: each shape here
// is read by some servers in another way than by others. Either it is refused,
// or nothing behind it is read; in no case is its tail a request.
func TestRequestSmuggling(t *testing.T) {
	w := newWorld(t, api.Limits{}, api.Options{})
	chunked := "0\r\n\r\n"
	for _, c := range []struct{ name, text, status string }{
		{"Content-Length and Transfer-Encoding", line + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, "200"},
		{"Transfer-Encoding and Content-Length", line + fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n", len(chunked+smuggled)) + chunked, "200"},
		{"two Content-Lengths", line + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n", len(smuggled)), "400"},
		{"list of Content-Lengths", line + "Content-Length: 0, 0\r\n\r\n", "400"},
		{"signed Content-Length", line + "Content-Length: +0\r\n\r\n", "400"},
		{"negative Content-Length", line + "Content-Length: -1\r\n\r\n", "400"},
		{"hexadecimal Content-Length", line + "Content-Length: 0x0\r\n\r\n", "400"},
		{"space before the colon", line + "Transfer-Encoding : chunked\r\n\r\n" + chunked, "400"},
		{"unknown coding", line + "Transfer-Encoding: xchunked\r\n\r\n" + chunked, "501"},
		{"two codings", line + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked, "501"},
		{"coding given twice", line + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked, "501"},
		{"vertical tab in the coding", line + "Transfer-Encoding: \x0bchunked\r\n\r\n" + chunked, "400"},
		{"folded coding", line + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n" + chunked, "200"},
		{"coding in HTTP/1.0", strings.Replace(line, "1.1", "1.0", 1) + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n", "200"},
		{"bare LF in a chunk", line + "Transfer-Encoding: chunked\r\n\r\n5\nabcde\n0\n\n", "400"},
		{"bare CR in a header", line + "X: a\rContent-Length: 50\r\n\r\n", "400"},
		{"NUL in a header", line + "X: a\x00b\r\n\r\n", "400"},
		{"chunk of a huge size", line + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "400"},
		{"chunk of a negative size", line + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "400"},
		{"two hosts", strings.Replace(line, "Host: x\r\n", "Host: x\r\nHost: y\r\n", 1) + "Content-Length: 0\r\n\r\n", "400"},
		{"no host", strings.Replace(line, "Host: x\r\n", "", 1) + "Content-Length: 0\r\n\r\n", "400"},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "404"},
		{"star", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404"},
		{"tunnel", "CONNECT 10.0.0.1:22 HTTP/1.1\r\nHost: 10.0.0.1:22\r\nConnection: close\r\n\r\n", "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t, address: w.address}
			answer := w.send(c.text + smuggled)
			assert.Equal(t, c.status, statusOf(answer), "%.300q", answer)
			assert.Equal(t, 1, strings.Count(answer, "HTTP/1."), "one answer: %.300q", answer)
		})
	}
	assert.Zero(t, w.smuggled.Load())
	w.good("alice")
}

// A request whose target is a whole URL is for its host, also with another Host header.
func TestAbsoluteForm(t *testing.T) {
	k, err := auth.Open(auth.Options{Loopback: true})
	require.NoError(t, err)
	w := newWorld(t, api.Limits{}, api.Options{Access: k})
	ask := func(target, host string) string {
		return statusOf(w.send("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"))
	}
	assert.Equal(t, "200", ask("/smuggled", "127.0.0.1"))
	assert.Equal(t, "200", ask("http://127.0.0.1/smuggled", "127.0.0.1"))
	assert.Equal(t, "401", ask("/smuggled", "evil.example"))
	assert.Equal(t, "401", ask("http://evil.example/smuggled", "127.0.0.1"))
	assert.EqualValues(t, 2, w.smuggled.Load())
}

const crowd = 200

// Headers and bodies that arrive byte by byte delay no other request, and end.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	t.Parallel()
	w := newWorld(t, api.Limits{Header: 4 * time.Second, Read: 8 * time.Second},
		api.Options{MaxBody: 64 << 10, Memory: 8 << 20})
	// The honest share all but the limits, which a busy machine could exceed for them.
	honest := &world{t: t, address: listen(t, api.ListenOptions{}, w.server)}
	slow := make([]net.Conn, 0, 2*crowd)
	for range crowd {
		header, body := w.dial(), w.dial()
		_, err := io.WriteString(header, line+"X-Slow: ")
		require.NoError(t, err)
		_, err = io.WriteString(body, line+"Content-Length: 65536\r\n\r\n{")
		require.NoError(t, err)
		slow = append(slow, header, body)
	}
	stop := make(chan struct{})
	var drip sync.WaitGroup
	drip.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, c := range slow {
				_, _ = c.Write([]byte("x"))
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	for range 20 {
		honest.good("bob")
	}
	for i, c := range slow {
		answer := w.rest(c)
		if i%2 == 1 { // a body gets an answer, unless the reset that follows overtakes it
			assert.Contains(t, []string{"", "408", "503"}, statusOf(answer), "%.200q", answer)
		}
	}
	close(stop)
	drip.Wait()
	honest.good("alice")
}

// A client that takes nothing of an answer loses its connection, in however many
// pieces the answer is written.
func TestSlowReader(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	for _, path := range []string{"/endless", "/large"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, api.Limits{Patience: 8 * time.Second}, api.Options{})
			c := w.dial()
			_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n")
			require.NoError(t, err)
			w.good("alice")
			w.ends()
		})
	}
}

// ends asserts that the handler of an answer does not wait for its client, which
// reads nothing and stays connected.
func (w *world) ends() {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(bound):
		require.FailNow(w.t, "the handler waits for a client that does not read")
	}
}

// An answer that pauses longer than its client may is no slow one, over HTTP/2
// either, where a deadline that passes ends the stream.
func TestAnswersMayPause(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	t.Parallel()
	a, files := certified(t)
	limits := unhurried
	limits.Patience = time.Second
	address := listen(t, api.ListenOptions{Limits: limits, Files: files, Reread: func(error) {}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		assert.NoError(t, http.NewResponseController(w).Flush())
		tick := time.NewTicker(2 * limits.Patience)
		defer tick.Stop()
		for _, word := range []string{"one", "two"} {
			<-tick.C
			_, err := io.WriteString(w, word)
			assert.NoError(t, err)
		}
	}))
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: http2}
		resp, err := (&http.Client{Transport: transport, Timeout: bound}).Get("https://" + address)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		transport.CloseIdleConnections()
		require.Equal(t, "onetwo", string(text))
		require.Equal(t, http2, resp.ProtoMajor == 2)
	}
}

// Who does not read an answer does not keep a listener that closes.
func TestSlowReaderAtTheEnd(t *testing.T) {
	t.Parallel()
	ended, written := make(chan struct{}), make(chan struct{}, 1)
	l, err := api.Listen(api.ListenOptions{Address: "127.0.0.1:0", Limits: unhurried, Logger: slog.New(slog.DiscardHandler)}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
			wait.Offer(written, struct{}{})
		}
	}))
	require.NoError(t, err)
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	<-written
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, l.Close(over))
	select {
	case <-ended:
	case <-time.After(bound / 2): // half of its patience
		require.FailNow(t, "the handler waits for a client that does not read")
	}
}

// Requests that grow without end are cut off: target, headers, body or trailers.
func TestFloods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Limits{}, api.Options{MaxBody: 64 << 10})
	// flood sends head, and then piece again and again until the server hangs up.
	flood := func(head, piece string) string {
		t.Helper()
		c := w.dial()
		var sender sync.WaitGroup
		sender.Go(func() {
			if _, err := io.WriteString(c, head); err != nil {
				return
			}
			for sent := 0; sent < 256<<20; sent += len(piece) {
				if _, err := io.WriteString(c, piece); err != nil {
					return
				}
			}
			assert.Fail(t, "the server takes everything", "%.60q", piece)
		})
		answer := w.rest(c)
		c.Close()
		sender.Wait()
		return statusOf(answer)
	}
	start := line + "Transfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct{ name, head, piece, status string }{
		{"request line", "GET /", strings.Repeat("a", 1<<10), "431"},
		{"many headers", line, "X-Flood: aaaaaaaaaaaaaaaa\r\n", "431"},
		{"one long header", line + "X-Flood: ", strings.Repeat("a", 1<<10), "431"},
		{"body without end", start, "1000\r\n" + strings.Repeat("x", 4096) + "\r\n", "413"},
		{"tiny chunks", start, "1\r\nx\r\n", "4"},
		{"chunk extensions", start, "1;" + strings.Repeat("e", 2000) + "\r\nx\r\n", "400"},
		{"one long chunk extension", start + "1;", strings.Repeat("e", 1<<10), "400"},
		{"one long chunk size", start, "00000000", "400"},
		{"trailers", start + "0\r\n", "X-Flood: " + strings.Repeat("a", 1<<10) + "\r\n", "4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The answer may be lost to the reset that unread bytes bring about.
			if status := flood(c.head, c.piece); status != "" {
				assert.True(t, strings.HasPrefix(status, c.status), status)
			}
		})
	}
	w.good("alice")
}

// Idle connections up to the limit delay a new one by the idle limit at most.
func TestIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	t.Parallel()
	w := newWorld(t, api.Limits{Connections: crowd, Header: 10 * time.Second, Idle: 5 * time.Second}, api.Options{})
	var idle []net.Conn
	for range crowd / 2 {
		idle = append(idle, w.dial()) // says nothing
		c := w.dial()                 // is done
		_, err := io.WriteString(c, line+"Content-Length: 2\r\n\r\n{}")
		require.NoError(t, err)
		idle = append(idle, c)
	}
	w.good("alice")
	for _, c := range idle {
		w.rest(c)
	}
}

// Who shows no token is answered before the body is asked for.
func TestUnauthenticatedBodiesAreNotRead(t *testing.T) {
	w := newWorld(t, api.Limits{}, api.Options{})
	for _, body := range []string{"Content-Length: 10000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", "Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n"} {
		c := w.dial()
		_, err := io.WriteString(c, strings.Replace(line, "alice", "mallory", 1)+body)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, body)
		assert.True(t, resp.Close)
		resp.Body.Close()
	}
}

// A body that ends before its end is not a shorter body.
func TestBrokenBodies(t *testing.T) {
	w := newWorld(t, api.Limits{}, api.Options{})
	for _, text := range []string{
		"Content-Length: 10\r\n\r\n{}",
		"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
	} {
		c := w.dial()
		_, err := io.WriteString(c, line+text)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		assert.Equal(t, "400", statusOf(w.rest(c)), text)
	}
}
