package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
)

const (
	secret      = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	otherSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// closed is an address without a listener: a port that was free a moment ago
// may be another process's now.
const closed = "127.0.0.1:1"

// newSink makes a sink that is closed with the test. Its time-out is one that a
// busy machine does not reach.
func newSink(t testing.TB, o Options) *Sink {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	s, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// serve starts an endpoint and returns its URL.
func serve(t testing.TB, h http.HandlerFunc) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func upsert(entity string, n int64) change.Change {
	return sinktest.Change("acme/ripeness@hook", entity, change.NewVersion(1, n), fmt.Appendf(nil, `{"n":%d}`, n))
}

func write(t testing.TB, s *Sink, changes ...change.Change) (map[int]*sinks.Error, error) {
	err := s.Write(t.Context(), changes)
	failed := map[int]*sinks.Error{}
	var be *sinks.BatchError
	if errors.As(err, &be) {
		for i, e := range be.Failed {
			failed[i] = sinks.Classify(e)
		}
	} else if err != nil {
		for i := range changes {
			failed[i] = sinks.Classify(err)
		}
	}
	return failed, err
}

func TestRequest(t *testing.T) {
	c := upsert("b-007 \u2028\"", 3)
	var calls int
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, http.MethodPost, r.Method)
		assert.Equal(t, "/hook?token=t", r.URL.RequestURI())
		assert.Equal(t, string(c.AppendRecord(nil)), string(body))
		assert.EqualValues(t, len(body), r.ContentLength)
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.Equal(t, c.Key, r.Header.Get("Idempotency-Key"))
		assert.Equal(t, c.Key, r.Header.Get("webhook-id"))
		assert.Equal(t, "acme", r.Header.Get("X-Tenant"))
		user, password, ok := r.BasicAuth()
		assert.True(t, ok && user == "me" && password == "pa ss")
		for _, s := range []string{secret, otherSecret} {
			verifier, err := standardwebhooks.NewWebhook(s)
			assert.NoError(t, err)
			assert.NoError(t, verifier.Verify(body, r.Header), "with the clock of today")
			assert.Error(t, verifier.Verify(append(body, ' '), r.Header))
		}
		stranger, err := standardwebhooks.NewWebhook("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
		assert.NoError(t, err)
		assert.Error(t, stranger.Verify(body, r.Header))
	})
	s := newSink(t, Options{
		URL:     strings.Replace(url, "http://", "http://me:pa%20ss@", 1) + "/hook?token=t",
		Secrets: []string{secret, otherSecret},
		Headers: map[string]string{"x-tenant": "acme"},
	})
	require.NoError(t, s.Write(t.Context(), []change.Change{c}))
	require.Equal(t, 1, calls)
}

// The context of a traced change travels beside the signed and compared parts.
func TestTraceIsPassedOn(t *testing.T) {
	var got []http.Header
	var bodies []string
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		verifier, err := standardwebhooks.NewWebhook(secret)
		assert.NoError(t, err)
		assert.NoError(t, verifier.Verify(body, r.Header))
		got, bodies = append(got, r.Header), append(bodies, string(body))
	})
	s := newSink(t, Options{URL: url, Secrets: []string{secret}, Headers: map[string]string{"Traceparent": "the operator's own"}})
	c := upsert("b-007", 3)
	for _, trace := range []*change.Trace{nil, {Parent: "00-a-b-01"}, {Parent: "00-a-c-01", State: "vendor=1"}} {
		c.Trace = trace
		require.NoError(t, s.Write(t.Context(), []change.Change{c}))
	}
	require.Len(t, got, 3)
	for i, want := range [][2]string{{"the operator's own", ""}, {"00-a-b-01", ""}, {"00-a-c-01", "vendor=1"}} {
		require.Equal(t, want, [2]string{got[i].Get("traceparent"), got[i].Get("tracestate")})
		require.Equal(t, bodies[0], bodies[i])
		require.Equal(t, c.Key, got[i].Get("Idempotency-Key"))
	}
	require.Empty(t, got[1].Values("tracestate"))
}

func TestStatuses(t *testing.T) {
	type outcome struct {
		class     sinks.Class
		ambiguous bool
	}
	want := map[int]outcome{
		408: {sinks.Retry, true}, 425: {sinks.Retry, false}, 429: {sinks.Retry, false},
		502: {sinks.Retry, true}, 503: {sinks.Retry, false}, 504: {sinks.Retry, true},
		409: {sinks.RetryBounded, true}, 500: {sinks.RetryBounded, true}, 501: {sinks.RetryBounded, true}, 599: {sinks.RetryBounded, true},
		300: {sinks.Pause, false}, 301: {sinks.Pause, false}, 304: {sinks.Pause, false}, 307: {sinks.Pause, false},
		401: {sinks.Pause, false}, 402: {sinks.Pause, false}, 403: {sinks.Pause, false}, 404: {sinks.Pause, false},
		405: {sinks.Pause, false}, 407: {sinks.Pause, false}, 410: {sinks.Pause, false}, 415: {sinks.Pause, false},
		421: {sinks.Pause, false}, 426: {sinks.Pause, false},
		400: {sinks.Reject, false}, 406: {sinks.Reject, false}, 413: {sinks.Reject, false}, 418: {sinks.Reject, false},
		422: {sinks.Reject, false}, 431: {sinks.Reject, false}, 499: {sinks.Reject, false},
	}
	var status int
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) })
	s := newSink(t, Options{URL: url})
	for _, status = range []int{200, 201, 202, 204, 206, 299} {
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1)}), "%d", status)
	}
	for _, status = range slices.Sorted(maps.Keys(want)) {
		failed, err := write(t, s, upsert("a", 1))
		e := failed[0]
		require.Equal(t, want[status], outcome{e.Class, e.Ambiguous}, "%d: %v", status, err) //nolint:testifylint // want is a table
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.Equal(t, e.Class == sinks.Pause, e.Hint != "", "%d: a pause says what to do", status)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                                0,
		"0":                               0,
		"7":                               7 * time.Second,
		"300":                             5 * time.Minute,
		"301":                             5 * time.Minute,
		"9223372036854775807":             5 * time.Minute,
		"99999999999999999999999":         5 * time.Minute,
		"-5":                              0,
		"1.5":                             2 * time.Second,
		"2.5":                             3 * time.Second,
		"2.0":                             2 * time.Second,
		".2":                              time.Second,
		"1e1":                             10 * time.Second,
		"1e999":                           5 * time.Minute,
		"+4":                              4 * time.Second,
		"\"7\"":                           7 * time.Second,
		"7s":                              7 * time.Second,
		"7 seconds":                       7 * time.Second,
		"1m30s":                           90 * time.Second,
		"1500ms":                          2 * time.Second,
		"-2m":                             0,
		"2, 9.1, 4":                       10 * time.Second,
		"7; comment":                      7 * time.Second,
		"NaN":                             0,
		"inf":                             0,
		"0x10":                            0,
		"Sun, 01 Mar 2026 12:00:30 UTC":   30 * time.Second,
		"Sun, 01 Mar 2026 13:00:30 +0100": 30 * time.Second,
		"2026-03-01T12:00:29.5Z":          30 * time.Second,
		"soon":                            0,
		"Sun, 01 Mar 2026 12:00:30 GMT":   30 * time.Second,
		"Sunday, 01-Mar-26 12:00:30 GMT":  30 * time.Second,
		"Sun Mar  1 12:00:30 2026":        30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT":   0,
		"Mon, 02 Mar 2026 12:00:00 GMT":   maxRetryAfter,
	} {
		require.Equal(t, want, retryAfter([]string{header}, now), header)
	}
	require.Equal(t, 9*time.Second, retryAfter([]string{"2", "9", "4"}, now), "the longest of several headers")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	failed, _ := write(t, newSink(t, Options{URL: url}), upsert("a", 1))
	require.Equal(t, maxRetryAfter, failed[0].RetryAfter)
}

// A receiver that asks to wait is not sent the rest of the batch.
func TestAskedToWaitSendsNoMore(t *testing.T) {
	var calls int
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	failed, _ := write(t, newSink(t, Options{URL: url, Concurrency: 1}), upsert("a", 1), upsert("b", 2), upsert("c", 3))
	require.Len(t, failed, 3)
	require.Equal(t, 1, calls)
	attempted := 0
	for _, e := range failed {
		require.Equal(t, 3*time.Second, e.RetryAfter)
		require.Equal(t, sinks.Retry, e.Class)
		if e.Attempted() {
			attempted++
		}
	}
	require.Equal(t, 1, attempted)
}

// hanging is an endpoint that does not answer about one entity. In an idle
// synctest bubble the clock advances to the time-out at once, so other changes are sent in
// time on any machine.
func hanging(t *testing.T, entity string, o Options) *Sink {
	t.Helper()
	conns, over := make(chan net.Conn), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), fmt.Sprintf(`"entity":%q`, entity)) {
			<-over
		}
	})}
	go func() { _ = server.Serve(pipes{conns, over}) }()
	o.URL = "http://127.0.0.1/hook"
	s := newSink(t, o)
	transport, err := s.server.Client()
	require.NoError(t, err)
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, served := net.Pipe()
		conns <- served
		return client, nil
	}
	t.Cleanup(func() {
		close(over)
		require.NoError(t, server.Close())
	})
	return s
}

// pipes is a listener in memory, as bubbles need: the network is outside of them.
type pipes struct {
	conns <-chan net.Conn
	over  <-chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestTimeoutAloneMayBeAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := write(t, hanging(t, "a", Options{Timeout: time.Second}), upsert("a", 1))
		e := sinks.Classify(err)
		require.Equal(t, sinks.Retry, e.Class)
		require.True(t, e.Ambiguous)
		require.ErrorContains(t, err, "no answer in time")
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestTimeoutBesideSuccessCountsAgainstTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hanging(t, "a", Options{Timeout: time.Second, Concurrency: 1})
		failed, _ := write(t, s, upsert("a", 1), upsert("b", 2), upsert("a", 3))
		require.Len(t, failed, 2)
		require.Equal(t, sinks.RetryBounded, failed[0].Class)
		require.True(t, failed[0].Ambiguous)
		require.Equal(t, sinks.Retry, failed[2].Class, "what was not sent is not to blame")
	})
}

// An answer that may mean an outage counts against the change once the receiver
// is seen to be up, so that it does not block its entity without end.
func TestDoubtfulStatusBesideSuccessCountsAgainstTheChange(t *testing.T) {
	for _, status := range []int{http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"entity":"a"`) {
				w.WriteHeader(status)
			}
		})
		s := newSink(t, Options{URL: url})
		failed, _ := write(t, s, upsert("a", 1))
		require.Equal(t, sinks.Retry, failed[0].Class, "%d alone", status)
		failed, _ = write(t, s, upsert("a", 1), upsert("b", 2))
		require.Len(t, failed, 1)
		require.Equal(t, sinks.RetryBounded, failed[0].Class, "%d", status)
		require.True(t, failed[0].Ambiguous)
	}
}

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var failed *sinks.BatchError
		require.ErrorAs(t, hanging(t, "a", Options{Timeout: time.Hour}).Write(ctx, []change.Change{upsert("a", 1)}), &failed)
		e := sinks.Classify(failed.Failed[0])
		require.ErrorIs(t, e, context.DeadlineExceeded)
		require.Equal(t, sinks.Retry, e.Class)
		require.True(t, e.Ambiguous)
	})
}

func TestEndlessAnswerIsCutOff(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	require.NoError(t, newSink(t, Options{URL: url}).Write(t.Context(), []change.Change{upsert("a", 1)}))
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	target := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("followed") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target+"/?s=hidden", status) })
		_, err := write(t, newSink(t, Options{URL: url}), upsert("a", 1))
		require.Equal(t, sinks.Pause, sinks.Classify(err).Class)
		require.NotContains(t, err.Error(), "hidden")
	}
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	s := newSink(t, Options{URL: "http://user:passw0rd@" + closed + "/path-token?q=hidden", Secrets: []string{secret},
		Headers: map[string]string{"Authorization": "Bearer hidden"}})
	_, err := write(t, s, upsert("a", 1))
	e := sinks.Classify(err)
	require.Equal(t, sinks.Retry, e.Class)
	require.False(t, e.Ambiguous, "nothing was sent")
	for _, word := range []string{"user", "passw0rd", "path-token", "hidden", secret[6:]} {
		require.NotContains(t, err.Error(), word)
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // it reports the refused handshake
	server.StartTLS()
	defer server.Close()
	_, err := write(t, newSink(t, Options{URL: server.URL}), upsert("a", 1))
	e := sinks.Classify(err)
	require.Equal(t, sinks.Pause, e.Class)
	require.False(t, e.Ambiguous)

	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	s := newSink(t, Options{URL: server.URL, TLS: &tls.Config{RootCAs: pool}})
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1)}))
}

func TestDenyPrivate(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") })
	for _, u := range []string{url, strings.Replace(url, "127.0.0.1", "localhost", 1)} {
		_, err := write(t, newSink(t, Options{URL: u, DenyPrivate: true}), upsert("a", 1))
		e := sinks.Classify(err)
		require.Equal(t, sinks.Pause, e.Class, "%v", err)
		require.False(t, e.Ambiguous)
	}
	require.ErrorIs(t, (&Config{URL: config.NewSecret(url), DenyPrivate: true}).Ask(t.Context(), nil), errDenied)
	require.NoError(t, (&Config{URL: config.NewSecret(url)}).Ask(t.Context(), nil))
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "172.32.0.1": true,
		"10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "127.9.9.9": false, "169.254.169.254": false,
		"0.0.0.0": false, "100.64.1.1": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false,
		"::1": false, "::": false, "fe80::1": false, "fd00::1": false, "ff02::1": false, "64:ff9b::7f00:1": false,
		"::ffff:127.0.0.1": false, "2002:7f00:1::": false, "::10.1.2.3": false,
	} {
		require.Equal(t, want, public(netip.MustParseAddr(address).Unmap()), address)
	}
}

// A connection of HTTP/2 outlives its requests. One that a device on the way forgot is
// found by a ping, not by the kernel some fifteen minutes later.
func TestAConnectionThatFellSilentIsLeft(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepted, silent atomic.Int32 // connections; those up to silent pass nothing on
	var pipes sync.WaitGroup
	pass := func(n int32, to, from net.Conn) {
		defer func() { _ = to.Close() }()
		b := make([]byte, 1<<16)
		for {
			k, err := from.Read(b)
			if err != nil {
				return
			}
			if n > silent.Load() {
				_, _ = to.Write(b[:k])
			}
		}
	}
	pipes.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			n := accepted.Add(1)
			far, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			pipes.Go(func() { pass(n, far, near) })
			pipes.Go(func() { pass(n, near, far) })
		}
	})
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	s, err := New(Options{URL: "https://" + l.Addr().String(), TLS: &tls.Config{RootCAs: pool}, Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	defer pipes.Wait()
	defer server.CloseClientConnections()
	defer l.Close()
	transport, err := s.server.Client()
	require.NoError(t, err)
	defer transport.CloseIdleConnections()
	if h := transport.HTTP2; h != nil { // faster than in earnest
		h.SendPingTimeout, h.PingTimeout = h.SendPingTimeout/100, h.PingTimeout/100
	}

	require.Eventually(t, func() bool { return s.Write(t.Context(), []change.Change{upsert("a", 1)}) == nil }, time.Minute, time.Millisecond)
	silent.Store(accepted.Load())
	require.Eventually(t, func() bool { return s.Write(t.Context(), []change.Change{upsert("a", 2)}) == nil }, time.Minute, time.Millisecond)
	require.Greater(t, accepted.Load(), silent.Load(), "over a new connection")
}

// A proxy of the environment would read requests, and connect in our place.
func TestNoProxyIsUsed(t *testing.T) {
	require.Nil(t, newTransport(Options{}).Proxy)
}

func TestOneRequestPerEntityInOrder(t *testing.T) {
	var mu sync.Mutex
	inFlight, most := map[string]int{}, 0
	last := map[string]change.Version{}
	both := make(chan struct{}) // closed when two entities are in flight together
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var rec record
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&rec))
		mu.Lock()
		inFlight[rec.Entity]++
		assert.Equal(t, 1, inFlight[rec.Entity])
		assert.Greater(t, rec.Version, last[rec.Entity])
		last[rec.Entity] = rec.Version
		n := 0
		for _, k := range inFlight {
			n += k
		}
		if most = max(most, n); most == 2 {
			select {
			case <-both:
			default:
				close(both)
			}
		}
		mu.Unlock()
		select {
		case <-both:
		case <-t.Context().Done():
		}
		mu.Lock()
		inFlight[rec.Entity]--
		mu.Unlock()
	})
	var batch []change.Change
	for i := range int64(40) {
		batch = append(batch, upsert(string(rune('a'+i%4)), i))
	}
	require.NoError(t, newSink(t, Options{URL: url, Concurrency: 3}).Write(t.Context(), batch))
	require.GreaterOrEqual(t, most, 2)
	require.LessOrEqual(t, most, 3)
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{URL: "https://example.org/hook", Secrets: []string{secret}}
	for name, change := range map[string]func(*Options){
		"url: must be a valid":       func(o *Options) { o.URL = "http://user:hidden#word@example.org:x/" },
		"secrets[0]: must be base64": func(o *Options) { o.Secrets = []string{"whsec_hidden!"} },
	} {
		o := good
		change(&o)
		_, err := New(o)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "hidden")
	}
	require.Equal(t, sinks.State, newSink(t, good).Traits().Kind)
}
