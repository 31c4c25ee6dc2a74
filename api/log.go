package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/internal/tracing"
)

// bodyStats is the request's part of its line in the access log.
type bodyStats struct {
	who      auth.Principal
	verb     auth.Permission
	received int64 // bytes of the body that were read
}

// countingBody counts the bytes read of a body.
type countingBody struct {
	io.ReadCloser
	n *int64
}

func (c *countingBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	*c.n += int64(n)
	return n, err
}

// statusRecorder remembers the status and counts the body.
type statusRecorder struct {
	http.ResponseWriter
	status int
	sent   int64 // bytes of the body
}

// statusSent is the status that the caller got.
func (a *statusRecorder) statusSent() int {
	if a.status == 0 {
		return http.StatusOK // as net/http answers for a handler that says nothing
	}
	return a.status
}

func (a *statusRecorder) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *statusRecorder) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.sent += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (a *statusRecorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// logAccess writes the line of a request that has ended. It has names that the
// configuration bounds and numbers: no path, query, header, key or payload, any of
// which may be secret.
func (s *Server) logAccess(r *http.Request, q *request, a *statusRecorder, took time.Duration, aborted bool) {
	if s.opt.AccessLog == nil {
		return
	}
	line := []slog.Attr{
		slog.String("request", q.id), slog.String("route", q.route), slog.Int("status", a.statusSent()),
		slog.Int64("received", q.seen.received), slog.Int64("sent", a.sent), slog.Duration("took", took),
	}
	for _, name := range []struct{ key, value string }{
		{"tenant", q.seen.who.Tenant}, {"token", q.seen.who.ID}, {"verb", string(q.seen.verb)},
		{"trace_id", tracing.ID(map[string]string{"traceparent": r.Header.Get("Traceparent")})},
	} {
		if name.value != "" {
			line = append(line, slog.String(name.key, name.value))
		}
	}
	if aborted { // the caller got a part of the answer, or went away
		line = append(line, slog.Bool("aborted", true))
	}
	s.opt.AccessLog.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelInfo, "access", line...)
}
