package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/twmb/franz-go/pkg/kerr"
)

// awaiting lets a process wait, while it starts, for a store or brokers that do not answer.
// Its probes say so: it is alive and not ready.
type awaiting struct {
	outages outages
	listen  func() (address string, stop func() error, err error) // of the probes; nil once ServeAdmin listens

	mu      sync.Mutex
	blocked operate.Observed // guarded by mu
}

// startRetry is the pause between attempts.
const startRetry = time.Second

// do repeats f, an attempt with an end, while its error is an outage of a server, and returns
// any other error. The end of ctx ends it, with the last error.
func (a *awaiting) do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	attempt := func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errors.New("opening took longer than "+openTimeout.String()))
		defer cancel()
		return f(ctx)
	}
	stop := func() error { return nil }
	defer func() { err = errors.Join(err, stop()) }()
	listens := false
	for {
		err := attempt()
		now := time.Now()
		if err == nil {
			a.outages.end("", nil, now)
			return nil
		}
		if ctx.Err() != nil || !unreachable(err) {
			return err
		}
		a.note(err, now)
		if !listens && a.listen != nil {
			_, closes, err := a.listen()
			if err != nil {
				return err
			}
			stop, listens = closes, true
		}
		if !wait.Sleep(ctx, startRetry) {
			return err
		}
	}
}

// note records an outage.
func (a *awaiting) note(err error, now time.Time) {
	what, reason := "kafka", blockedTopic
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	if strings.HasPrefix(err.Error(), "store: ") || errors.As(err, &server) || errors.As(err, &connect) {
		what, reason = "store", blockedStore
	}
	a.outages.end("", map[string]bool{what: true}, now)
	a.outages.note(what, err, remedy.Of(what, err), now)
	since, _ := a.outages.times(what)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocked = operate.Observed{Blocked: fmt.Errorf("starting: %w", err), Reason: reason, Since: since, NextTry: now.Add(startRetry)}
}

// health returns the health of the waiting process.
func (a *awaiting) health() operate.Health {
	a.mu.Lock()
	defer a.mu.Unlock()
	return operate.HealthOf(a.blocked, time.Now())
}

// outageCodes are the codes of a PostgreSQL server that starts, stops, or takes no more
// connections, and their classes.
var outageCodes = []string{"08", "57P", "53"}

// unreachable reports whether an error is an outage of a server, which ends without a change
// of the configuration.
func unreachable(err error) bool {
	var (
		server  *pgconn.PgError
		broker  *kerr.Error
		name    *net.DNSError
		network net.Error
	)
	switch {
	case errors.As(err, &server):
		for _, code := range outageCodes {
			if strings.HasPrefix(server.Code, code) {
				return true
			}
		}
		return false
	case errors.As(err, &broker):
		return broker.Retriable
	case errors.As(err, &name):
		return !name.IsNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNABORTED, syscall.ETIMEDOUT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
