package webhook

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
)

// answerRaw starts a receiver that answers each request with the bytes that answer makes
// of it, and ends the connection.
func answerRaw(t *testing.T, answer func(request string) string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var request bytes.Buffer
			r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &request)))
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			_, _ = io.WriteString(c, answer(request.String()))
			_ = c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// A malformed answer that repeats the request, as debugging proxies do, is described in
// words that hold nothing of it.
func TestMalformedAnswersAreNotQuoted(t *testing.T) {
	for name, answer := range map[string]func(string) string{
		"status line":   func(request string) string { return request },
		"no status":     func(request string) string { return "HTTP/1.1 " + request },
		"header":        func(request string) string { return "HTTP/1.1 200 OK\r\n" + request },
		"long":          func(request string) string { return "HTTP/1.1 200 OK\r\n" + strings.Repeat(request, 100) },
		"endless":       func(request string) string { return "HTTP/1.1 200 OK\r\nx: " + strings.Repeat("canary", 20_000) },
		"length":        func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: canary\r\n\r\n" },
		"encoding":      func(string) string { return "HTTP/1.1 200 OK\r\nTransfer-Encoding: canary\r\n\r\n" },
		"cut":           func(string) string { return "HTTP/1.1 200 OK\r\nx: can" },
		"nothing":       func(string) string { return "" },
		"protocol":      func(string) string { return "HTTP/9.canary 200 OK\r\n\r\n" },
		"control bytes": func(string) string { return "HTTP/1.1 200 OK\r\nx: \x1b[2Jcanary\x00\r\n\r\n" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, Options{
				URL: strings.Replace(answerRaw(t, answer), "//", "//me:canary@", 1) + "/canary?t=canary", Secrets: []string{secret},
				Headers: map[string]string{"X-Token": "canary"},
			})
			_, err := write(t, s, sinktest.Change("acme/ripeness@hook", "b-007", change.NewVersion(1, 1), []byte(`{"n":"canary"}`)))
			e := sinks.Classify(err)
			require.Equal(t, sinks.Retry, e.Class)
			require.True(t, e.Ambiguous)
			require.NotContains(t, err.Error(), "can")
			require.NotContains(t, err.Error(), "127.0.0.1")
			require.LessOrEqual(t, len(e.Err.Error()), reason.Max)
		})
	}
}

// Informational answers before the answer, and one that is given before the request was
// read, count as nothing and as the answer.
func TestEarlyAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n": "",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n":                     "413",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut":                                                             "",
		"HTTP/1.1 200\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope":                                      "",
	} {
		s := newSink(t, Options{URL: answerRaw(t, func(string) string { return answer })})
		_, err := write(t, s, upsert("a", 1))
		if want == "" {
			require.NoError(t, err, answer)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// A receiver's own reason reaches the operator, without repeated parts of the request.
func TestReasonsOfTheReceiver(t *testing.T) {
	for body, want := range map[string]string{
		`api key revoked, call Maria`:                                `: "api key revoked, call Maria"`,
		`{"error":{"message":"unknown field ripeness"}}`:             `: "unknown field ripeness"`,
		`{"error":"weight must not be -5.25 for Cavendish bananas"}`: `: "weight must not be -… for … bananas"`,
		`{"title":"gone","status":400}`:                              `: "gone"`,
		`{"code":17}`:                                                `: "{\"code\":17}"`,
		`<html>Bad Request</html>`:                                   "",
		"":                                                           "",
		"no token canary for\n\t/hook?t=x\x1b[2J \xff":               `: "no token … for … [2J"`,
		"eyJkb2MiOnsid2VpZ2h0IjotNS4yNSwia2luZCI6ImNhdmVuZGlzaCJ9fQ is wrong": `: "… is wrong"`,
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, body)
		})
		s := newSink(t, Options{URL: url + "/hook?t=x", Headers: map[string]string{"X-Token": "canary"}})
		_, err := write(t, s, sinktest.Change("acme/ripeness@hook", "b-007", change.NewVersion(1, 1), []byte(`{"weight":-5.25,"kind":"cavendish"}`)))
		e := sinks.Classify(err)
		require.Equal(t, "the receiver answered 401 Unauthorized"+want, e.Err.Error(), body)
		require.Equal(t, want == "", e.Hint != "", "the receiver says itself what to do")
	}
	long := reason.Mask(strings.Repeat("wörter ", 10_000), nil)
	require.LessOrEqual(t, len(long), reason.Max)
	require.True(t, strings.HasSuffix(long, "…"), long)
	require.Equal(t, "a … b", reason.Mask("a 1.25.7 b", fmt.Appendf(nil, `[1,{"x":[25,"7"]}]`)))
}
