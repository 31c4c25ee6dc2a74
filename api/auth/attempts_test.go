package auth_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/stretchr/testify/require"
)

func TestKnown(t *testing.T) {
	a := auth.NewAttempts("test", prometheus.NewRegistry(), slog.New(slog.DiscardHandler), nil)
	for _, c := range []struct {
		header []string
		tokens []string
		want   bool
	}{
		{nil, []string{""}, false},
		{[]string{"Bearer "}, []string{""}, false},
		{[]string{"Bearer secret"}, []string{"secret"}, true},
		{[]string{"bearer secret"}, []string{"", "secret"}, true},
		{[]string{"Bearer secret"}, []string{"secret", ""}, true},
		{[]string{"Bearer secret"}, nil, false},
		{nil, []string{"secret"}, false},
		{[]string{"secret"}, []string{"secret"}, false},
		{[]string{"Bearer secre"}, []string{"secret"}, false},
		{[]string{"Basic secret"}, []string{"secret"}, false},
		{[]string{"Bearer secret", "Bearer secret"}, []string{"secret"}, false},
	} {
		known, wait := a.Verify(&http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"Authorization": c.header}}, c.tokens...)
		require.Equal(t, c.want, known, "%q for %q", c.header, c.tokens)
		require.Zero(t, wait)
	}
}

// An address, or what an IPv6 host can choose from, has ten wrong tokens a
// minute; the others and the right token do not notice, nor does the log fill.
func TestAttempts(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	a := auth.NewAttempts("api", reg, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	wrong := func(address string) time.Duration {
		return a.NoteFailure(&http.Request{RemoteAddr: address})
	}
	for i := range 10 {
		require.Zero(t, wrong(fmt.Sprintf("[2001:db8:1:2::%x]:1", i)))
	}
	require.Equal(t, time.Minute, wrong("[2001:db8:1:2:ffff::1]:1"), "the same /64")
	for range 100 {
		wrong("[2001:db8:1:2:ffff::1]:1")
	}
	require.Zero(t, wrong("[2001:db8:1:3::1]:1"), "another one")
	require.Zero(t, wrong("192.0.2.1:1"))
	require.Zero(t, wrong("[::ffff:192.0.2.2]:1"), "an IPv4 address in another form has no /64")
	require.Equal(t, 2, strings.Count(log.String(), "from=2001:db8:1:2::/64"))
	require.NotContains(t, log.String(), "ffff::1")
	counts, err := reg.Gather()
	require.NoError(t, err)
	require.InDelta(t, 114, counts[0].GetMetric()[0].GetCounter().GetValue(), 0)

	known, wait := a.VerifyText(&http.Request{RemoteAddr: "[2001:db8:1:2::1]:1"}, "secret", "secret")
	require.True(t, known)
	require.Zero(t, wait)
	now = now.Add(time.Minute)
	require.Zero(t, wrong("[2001:db8:1:2::1]:1"), "its minute is over")

	// The remembered addresses are bounded, and the limit holds for any number of them.
	var limited int
	for i := range 3000 {
		if wrong(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256)) > 0 {
			limited++
		}
	}
	require.Greater(t, limited, 1500)
	require.Less(t, strings.Count(log.String(), "from=10.1."), 1001)
}

func TestAdmit(t *testing.T) {
	a := auth.NewAttempts("test", prometheus.NewRegistry(), slog.New(slog.DiscardHandler), nil)
	try := func(token string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		require.Equal(t, token == "secret", a.Admit(w, request(token), "secret"))
		return w
	}
	for range 20 {
		require.Equal(t, 401, try("").Code, "who shows none has guessed nothing")
	}
	for range 10 {
		w := try("wrong")
		require.Equal(t, 401, w.Code)
		require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
	}
	w := try("wrong")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "60", w.Header().Get("Retry-After"))
	require.Equal(t, 200, try("secret").Code)
}
