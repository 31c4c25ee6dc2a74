package page_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/stretchr/testify/require"
)

// stuckWriter is a client that takes nothing of its answer until it is released.
type stuckWriter struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	release <-chan struct{}
}

func (w stuckWriter) Write(b []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// Clients without a token neither shut operators out nor keep them from signing in:
// not by bodies that do not end, not by answers that they do not take.
func TestStrangersDoNotShutOutOperators(t *testing.T) {
	w := newWorld(t, nil)
	as, _ := w.signIn(token)
	var slow sync.WaitGroup
	defer slow.Wait()
	reading, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	for range 100 {
		slow.Go(func() {
			body, send := io.Pipe()
			go func() {
				_, _ = send.Write([]byte("name="))
				reading <- struct{}{}
				<-end
				_ = send.Close()
			}()
			r := httptest.NewRequest(http.MethodPost, local+"/sign-in", body)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w.page.ServeHTTP(httptest.NewRecorder(), r)
		})
		<-reading
	}
	right := url.Values{"name": {"ann"}, "token": {token}}
	operatorsWork := func() {
		t.Helper()
		status, _ := w.get("/audit", as)
		require.Equal(t, 200, status)
		status, _ = w.get("/audit", header("Authorization", "Bearer "+token))
		require.Equal(t, 200, status)
		require.Equal(t, 303, w.post("/sign-in", right).StatusCode)
	}
	operatorsWork()
	status, _ := w.get("/sign-in")
	require.Equal(t, 200, status)

	// Answers are pages in memory: those to strangers are bounded.
	writing := make(chan struct{})
	stuck := func(as ...asks) {
		slow.Go(func() {
			r := httptest.NewRequest(http.MethodGet, local+"/sign-in", nil)
			if len(as) > 0 {
				r = httptest.NewRequest(http.MethodGet, local+"/audit", nil)
			}
			for _, f := range as {
				f(r)
			}
			w.page.ServeHTTP(stuckWriter{httptest.NewRecorder(), writing, end}, r)
		})
		<-writing
	}
	for range 64 {
		stuck()
	}
	resp := w.do("GET", "/sign-in", nil)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	operatorsWork()
	for range 64 {
		stuck(as)
	}
	status, _ = w.get("/audit", as)
	require.Equal(t, 503, status, "those of operators are bounded, too")
}

// A sign-in whose body does not end has its own time, far below the listener's.
func TestSlowSignInsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	w := newWorld(t, nil)
	const bound = time.Minute
	l, err := api.Listen(api.ListenOptions{Name: "admin", Address: "127.0.0.1:0", Logger: w.opt.Logger, Limits: api.Limits{
		Header: 10 * bound, Read: 10 * bound, Idle: 10 * bound, Patience: bound, HeaderBytes: 16 << 10, Connections: 10,
	}}, w.page)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close(t.Context())) }()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(bound)))
	_, err = io.WriteString(c, "POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nname=")
	require.NoError(t, err)
	answer, err := io.ReadAll(c)
	require.NoError(t, err, "the connection ends")
	require.Contains(t, string(answer), "400 Bad Request")
}

// Two processes on ports of one host have cookies of their own.
func TestCookiesAreNamedAfterTheProcess(t *testing.T) {
	names := map[string]bool{}
	for range 2 {
		w := newWorld(t, nil)
		resp := w.post("/sign-in", url.Values{"name": {"ann"}, "token": {token}})
		require.Len(t, resp.Cookies(), 1)
		names[resp.Cookies()[0].Name] = true
	}
	require.Len(t, names, 2)
}

// A sign-in is a few words.
func TestSignInsAreSmall(t *testing.T) {
	w := newWorld(t, nil)
	resp := w.post("/sign-in", url.Values{"name": {"ann"}, "token": {strings.Repeat("x", 9<<10)}})
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}
