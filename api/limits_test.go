package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/stretchr/testify/require"
)

// A token that sends too much is told when to come again; the others are served.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, api.Options{Rate: 1})
		send := func(token string) *httptest.ResponseRecorder {
			return ask(s, "POST", "/v1/sources/orders/events", token, "{}")
		}
		require.Equal(t, 200, send("alice").Code)
		require.Equal(t, 200, send("alice").Code, "two seconds' worth may come at once")
		for range 3 { // what is refused does not count
			w := send("alice")
			require.Equal(t, 429, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		}
		require.Equal(t, 200, ask(s, "POST", "/v1/services/x/check", "bob", "{}").Code)
		for range 10 {
			require.Equal(t, 401, send("mallory").Code, "who is not known has no rate to use up")
		}
		require.True(t, wait.Sleep(t.Context(), time.Second))
		require.Equal(t, 200, send("alice").Code)
		require.Equal(t, 429, send("alice").Code)
	})
}

// The bodies of one tenant fill its share of the memory, not the server's.
func TestBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const largest = 64 << 10
		s, _ := newServer(t, api.Options{Memory: 4 << 20, MaxBody: largest, Timeout: 2 * time.Second}) // of the bubble, to wait for room
		held, release := make(chan int, 100), make(chan struct{})
		s.Handle("POST /hold", auth.Any, func(w http.ResponseWriter, r *http.Request, _ auth.Principal) {
			body, ok := api.ReadBody(w, r, 0, api.Rows{})
			if !ok {
				return
			}
			held <- len(body)
			<-release
		})
		body := strings.Repeat("x", largest)
		answers := make(chan int, 100)
		post := func(token string) {
			go func() { answers <- ask(s, "POST", "/hold", token, body).Code }()
		}
		// A tenant has room for three bodies with their records.
		for range 3 {
			post("alice")
			require.Equal(t, largest, <-held)
		}
		post("alice")
		require.Equal(t, 503, <-answers)
		post("bob")
		require.Equal(t, largest, <-held, "another tenant has its own share")
		close(release)
		for range 4 {
			require.Equal(t, 200, <-answers)
		}
		require.Equal(t, 200, ask(s, "POST", "/hold", "alice", body).Code, "room comes back")
		<-held
	})
}

// The requests of one tenant that are under way do not keep others from theirs.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	s, _ := newServer(t, api.Options{Rate: 1_000_000})
	under, release := make(chan string, 2000), make(chan struct{})
	s.Handle("POST /hold", auth.Any, func(_ http.ResponseWriter, _ *http.Request, who auth.Principal) {
		under <- who.ID
		<-release
	})
	answers := make(chan int, 2000)
	for range 512 {
		go func() { answers <- ask(s, "POST", "/hold", "alice", "x").Code }()
		require.Equal(t, "alice", <-under)
	}
	w := ask(s, "POST", "/hold", "alice", "x")
	require.Equal(t, 503, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	go func() { answers <- ask(s, "POST", "/hold", "bob", "x").Code }()
	require.Equal(t, "bob", <-under)
	close(release)
	for range 513 {
		require.Equal(t, 200, <-answers)
	}
	require.Equal(t, 200, ask(s, "POST", "/hold", "alice", "x").Code, "places come back")
	<-under
}

func TestReadBody(t *testing.T) {
	s, _ := newServer(t, api.Options{MaxBody: 100_000})
	s.Handle("POST /small", auth.Any, func(w http.ResponseWriter, r *http.Request, _ auth.Principal) {
		if body, ok := api.ReadBody(w, r, 50_000, api.Rows{}); ok {
			_, _ = w.Write(body)
		}
	})
	for _, size := range []int{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 32 << 10, 49_999, 50_000, 50_001, 100_000, 100_001} {
		for _, known := range []bool{true, false} {
			body := strings.Repeat("x", size)
			r := httptest.NewRequest(http.MethodPost, "/small", strings.NewReader(body))
			if !known {
				r = httptest.NewRequest(http.MethodPost, "/small", io.MultiReader(strings.NewReader(body)))
				r.ContentLength = -1
			}
			r.Header.Set("Authorization", "Bearer alice")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if size > 50_000 {
				require.Equal(t, 413, w.Code, size)
				continue
			}
			require.Equal(t, 200, w.Code, size)
			require.Equal(t, body, w.Body.String())
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/small", strings.NewReader("xx"))
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set("Content-Encoding", "gzip")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, 415, w.Code)
}

// whole is a body whose client hangs up as soon as it has sent all of it.
type whole struct {
	io.Reader
	hangUp func()
}

func (b whole) Read(p []byte) (n int, err error) {
	if n, err = b.Reader.Read(p); errors.Is(err, io.EOF) {
		b.hangUp()
	}
	return n, err
}

// A complete body is ingested, even if its client closed the connection.
func TestBodyOfAClientThatHangsUp(t *testing.T) {
	s, _ := newServer(t, api.Options{})
	connected, hangUp := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(connected, http.MethodPost, "/v1/sources/orders/events", whole{strings.NewReader("{}"), hangUp})
	r.Header.Set("Authorization", "Bearer alice")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.ErrorIs(t, connected.Err(), context.Canceled)
	require.Equal(t, 200, w.Code, w.Body)
	require.Equal(t, "{}", w.Body.String())
}

// The effect of a request continues when its client disconnects, and ends with the process.
func TestWork(t *testing.T) {
	limit, end := context.WithCancel(t.Context())
	s, _ := newServer(t, api.Options{Limit: limit})
	s.Handle("POST /work", auth.Any, func(_ http.ResponseWriter, r *http.Request, _ auth.Principal) {
		ctx, cancel := api.Work(r)
		defer cancel()
		require.Error(t, r.Context().Err(), "the client is gone")
		require.NoError(t, ctx.Err())
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		end()
		<-ctx.Done()
	})
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	r := httptest.NewRequestWithContext(gone, http.MethodPost, "/work", http.NoBody)
	r.Header.Set("Authorization", "Bearer alice")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code)
}

// Labels of metrics are routes and statuses, never a caller's text.
func TestMetrics(t *testing.T) {
	s, reg := newServer(t, api.Options{})
	for i := range 50 {
		ask(s, "POST", fmt.Sprintf("/v1/sources/random%d/events", i), "alice", "{}")
		ask(s, "GET", fmt.Sprintf("/random%d", i), "alice", "")
		ask(s, "BREW", "/v1/panic", "alice", "")
	}
	ask(s, "POST", "/v1/sources/orders/events", "alice", "{}")
	ask(s, "GET", "/v1/panic", "alice", "")
	found, err := reg.Gather()
	require.NoError(t, err)
	counts, timed := map[string]float64{}, 0
	for _, f := range found {
		if f.GetName() == "weir_api_request_seconds" {
			timed = len(f.GetMetric())
		}
		if f.GetName() != "weir_api_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				counts[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = n
			}
		}
	}
	require.Equal(t, map[string]float64{
		"POST /v1/sources/{source}/events 403": 50,
		"POST /v1/sources/{source}/events 200": 1,
		"none 404":                             50,
		"none 405":                             50,
		"GET /v1/panic 500":                    1,
	}, counts)
	require.Equal(t, 3, timed)
}

// More tokens than are remembered do not grow the memory without bound.
// Wrong tokens are limited before anything else is done for them; who shows none
// or the right one is not held up.
func TestWrongTokensAreLimited(t *testing.T) {
	s, _ := newServer(t, api.Options{})
	const path = "/v1/sources/orders/events"
	for range 10 {
		require.Equal(t, 401, ask(s, "POST", path, "mallory", "{}").Code)
	}
	w := ask(s, "POST", path, "mallory", "{}")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "60", w.Header().Get("Retry-After"))
	require.Equal(t, 401, ask(s, "POST", path, "", "{}").Code)
	require.Equal(t, 200, ask(s, "POST", path, "alice", "{}").Code)
}

func TestManyTokens(t *testing.T) {
	s, _ := newServer(t, api.Options{Access: allTokens{}})
	for i := range 25_000 {
		require.Equal(t, 200, ask(s, "POST", "/v1/services/x/check", strconv.Itoa(i), "").Code)
	}
	require.LessOrEqual(t, api.Shares(s), 10_000)
}

// allTokens admits every token as a principal of its own.
type allTokens struct{}

func (allTokens) Authenticate(r *http.Request) (auth.Principal, error) {
	token, _ := auth.Bearer(r.Header)
	return auth.Principal{ID: token, Tenant: "acme", Permissions: []auth.Permission{auth.Check}}, nil
}
