package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/checkhttp"
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "acme/crm@check"

// keys admits requests with the token.
type keys struct{}

func (keys) Authenticate(r *http.Request) (auth.Principal, error) {
	if token, _ := auth.Bearer(r.Header); token == "secret" {
		return auth.Principal{ID: "acme-1", Tenant: "acme", Permissions: []auth.Permission{auth.Check}}, nil
	}
	return auth.Principal{}, auth.ErrUnauthenticated
}

// handler is the API over a SQLite store.
func handler() (h http.Handler, stop func()) {
	dir, err := os.MkdirTemp("", "weir-client")
	must(err)
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Join(dir, "state.db")})
	must(err)
	must(s.Migrate(context.Background()))
	numbers, err := s.Services(context.Background(), []string{name})
	must(err)
	checker := checks.New(checks.Options{Store: s})
	server := api.New(api.Options{Access: keys{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	checkhttp.Mount(server, checkhttp.Options{Checker: checker, MaxRows: 10, Find: func(_ context.Context, asked string) (checks.Service, error) {
		if asked != name {
			return checks.Service{}, checkhttp.ErrNoService
		}
		return checks.Service{Name: name, Number: numbers[name]}, nil
	}})
	return server, func() {
		checker.Close(context.Background())
		must(s.Close())
		must(os.RemoveAll(dir))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// serve returns the address of an API.
func serve() (address string, stop func()) {
	h, closeStore := handler()
	listener := httptest.NewServer(h)
	return listener.URL, func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		listener.Close()
		closeStore()
	}
}

// through returns a client whose requests pass by something before the API.
func through(t *testing.T, before func(n int, w http.ResponseWriter, r *http.Request, next http.Handler)) *client.Client {
	t.Helper()
	h, stop := handler()
	var mu sync.Mutex
	n := 0
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		count := n
		mu.Unlock()
		before(count, w, r, h)
	}))
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		listener.Close()
		stop()
	})
	c, err := client.New(client.Options{URL: listener.URL + "/", Token: "secret", Attempts: 4, MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond})
	require.NoError(t, err)
	return c
}

// A refused or lost attempt is repeated as it was, and an answer that was lost
// after it was decided comes again.
func TestRepeats(t *testing.T) {
	var bodies []string
	c := through(t, func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		bodies = append(bodies, string(text))
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		switch n {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3: // decided, and the answer is lost
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
		}
	})
	a, err := c.Service(name).Check(t.Context(), client.Check{Entity: "e", Payload: json.RawMessage(`{"a": 1.0}`), EventID: "event-1", Sequence: "5"})
	require.NoError(t, err)
	require.Equal(t, client.Pass, a.Decision)
	require.True(t, a.Repeated, "the third attempt was decided")
	require.Len(t, a.Key, 32)
	require.Len(t, bodies, 4)
	for _, b := range bodies {
		require.JSONEq(t, `{"entity":"e","payload":{"a":1.0},"event_id":"event-1","sequence":"5"}`, b)
	}
}

// It fails after its attempts, and at once where no attempt can help.
func TestGivesUp(t *testing.T) {
	for status, attempts := range map[int]int{503: 4, 429: 4, 500: 1, 422: 1, 401: 1, 307: 1} {
		tried := 0
		c := through(t, func(n int, w http.ResponseWriter, r *http.Request, _ http.Handler) {
			tried = n
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Request-Id", "the-request")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "not JSON")
		})
		err := c.Service(name).Confirm(t.Context(), "e", 1)
		var failed *client.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, status, failed.Status)
		require.Equal(t, "the-request", failed.RequestID)
		require.Equal(t, http.StatusText(status), failed.Title)
		require.Equal(t, attempts, tried, status)
	}
}

// A context that ends, ends the waiting.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := through(t, func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		cancel()
	})
	_, err := c.Service(name).Release(ctx, client.Failed{Entity: "e", Version: 1})
	require.ErrorIs(t, err, context.Canceled)
}

func TestErrors(t *testing.T) {
	c := through(t, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })
	crm := c.Service(name)
	err := crm.Confirm(t.Context(), "e", 17)
	require.ErrorIs(t, err, client.ErrUnknownVersion)
	require.Contains(t, err.Error(), "409")
	_, err = crm.Check(t.Context(), client.Check{Payload: 1})
	var failed *client.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, http.StatusUnprocessableEntity, failed.Status)
	require.NotEmpty(t, failed.Detail)
	require.NotEmpty(t, failed.RequestID)
	require.NotErrorIs(t, err, client.ErrUnknownVersion)
	_, err = c.Service("acme/other@check").Check(t.Context(), client.Check{Entity: "e"})
	require.ErrorAs(t, err, &failed)
	require.Equal(t, http.StatusNotFound, failed.Status)
	_, err = crm.Check(t.Context(), client.Check{Entity: "e", Payload: func() {}})
	require.ErrorContains(t, err, "JSON")
}

func TestBatches(t *testing.T) {
	c := through(t, func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })
	crm := c.Service(name)
	answers, err := crm.CheckAll(t.Context(), []client.Check{
		{Entity: "a"}, // null is a payload
		{Entity: "b", Hash: "h"},
		{Entity: ""},
		{Entity: "a"},
	})
	require.NoError(t, err)
	require.Len(t, answers, 4)
	require.Equal(t, client.Pass, answers[0].Value.Decision)
	require.Equal(t, client.Pass, answers[1].Value.Decision)
	var failed *client.Error
	require.ErrorAs(t, answers[2].Err, &failed)
	require.Equal(t, http.StatusUnprocessableEntity, failed.Status)
	require.True(t, answers[3].Value.Repeated)
	confirmed, err := crm.ConfirmAll(t.Context(), []client.Sent{{"a", answers[0].Value.Version}, {"b", answers[1].Value.Version + 1}})
	require.NoError(t, err)
	require.Equal(t, answers[0].Value.Version, confirmed[0].Value.Version)
	require.ErrorIs(t, confirmed[1].Err, client.ErrUnknownVersion)
	released, err := crm.ReleaseAll(t.Context(), []client.Failed{
		{Entity: "a", Version: answers[0].Value.Version}, {Entity: "b", Version: answers[1].Value.Version, Outcome: client.Refused},
	})
	require.NoError(t, err)
	require.False(t, released[0].Value.Released)
	require.Equal(t, client.Released{Released: true, Version: answers[1].Value.Version, State: "unknown"}, released[1].Value)
	none, err := crm.CheckAll(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = crm.CheckAll(t.Context(), make([]client.Check, 11))
	require.ErrorAs(t, err, &failed)
	require.Equal(t, http.StatusRequestEntityTooLarge, failed.Status)
}

// The token goes to the API alone: it is in no error and not to be printed.
func TestTokenStaysSecret(t *testing.T) {
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", Token: "secret", Attempts: 1})
	require.NoError(t, err)
	err = c.Service(name).Confirm(t.Context(), "e", 1)
	require.Error(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		require.NotContains(t, fmt.Sprintf(verb, c), "secret")
		require.NotContains(t, fmt.Sprintf(verb, c.Service(name)), "secret")
		require.NotContains(t, fmt.Sprintf(verb, err), "secret")
	}
	for _, address := range []string{"", "127.0.0.1:9601", "http://weir.example", "http://127.0.0.1.example", "http://10.0.0.1:9601", "ftp://host", "http://user:secret@host", "http://host?secret", "http://%zz"} {
		_, err := client.New(client.Options{URL: address})
		require.Error(t, err, address)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, o := range []client.Options{{URL: "https://weir.example"}, {URL: "http://localhost:9601"}, {URL: "http://[::1]"}, {URL: "http://weir.example", Insecure: true}} {
		_, err := client.New(o)
		require.NoError(t, err, o.URL)
	}
}

// A server, or who answers in its place, does not hold up the caller for longer
// than the caller wants.
func TestRetryAfterIsCapped(t *testing.T) {
	for _, asked := range []string{"3600", "2147483648", "9223372036854775807", "99999999999999999999", "-1", "soon"} {
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Retry-After", asked)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "{}")
		}))
		c, err := client.New(client.Options{URL: server.URL, MinBackoff: time.Millisecond, MaxRetryAfter: time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, c.Service(name).Confirm(t.Context(), "e", 1), asked)
		require.Equal(t, 2, n)
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		server.Close()
	}
}
