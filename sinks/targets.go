package sinks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
)

// Targets are the clients that the services of one process share, one per target.
// The zero value is ready. It may be used concurrently.
type Targets struct {
	mu   sync.Mutex
	open map[string]*target // guarded by mu; by ClientConfig.Key
}

// ClientConfig describes a shared client and the service that wants it.
type ClientConfig[C any] struct {
	// Key identifies the client by the whole of its configuration, credentials,
	// TLS identity and bounds included: sinks of one key share one client. See ClientKey.
	Key string
	// Connections is how many connections services hold at a time; 0 is no bound.
	Connections int
	// Tenant names the unit that may block: a table, or the service. While a target has several
	// tenants, none of them holds more than half of the connections.
	Tenant string
	// Open makes the client. It must not wait for the server.
	Open func() (C, error)
	// Close ends the client when the last service has returned it.
	Close func(C) error
}

// ClientKey makes a ClientConfig.Key of a kind of client and everything that its
// configuration holds, as JSON values. Secrets cannot be read from it.
func ClientKey(kind string, configuration ...any) string {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(append([]any{kind}, configuration...)); err != nil {
		panic(err) // a value that is not JSON: a mistake in the program
	}
	return hex.EncodeToString(h.Sum(nil))
}

// target is the shared state of the services of one key.
type target struct {
	key string

	opening sync.Mutex
	client  any          // guarded by opening; nil before the first use
	end     func() error // guarded by opening; closes client

	mu          sync.Mutex
	services    int // guarded by mu
	breaker     breaker
	connections connections
}

// Lease is one service's share in a client. Its methods may be called concurrently.
type Lease[C any] struct {
	member
	of     *Targets
	config ClientConfig[C]
	closed sync.Once
}

// member is one service of a target.
type member struct {
	*target
	tenant *tenant
	// trying: Try took the time of the next attempt, and Hold is part of that. Guarded by target.mu.
	trying bool
}

// Share returns a service's share in the client of c.Key. It does not open
// the client yet. With a nil t the share is the only one.
func Share[C any](t *Targets, c ClientConfig[C]) *Lease[C] {
	if t == nil {
		t = &Targets{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	shared := t.open[c.Key]
	if shared == nil {
		shared = &target{key: c.Key, connections: connections{limit: c.Connections}}
		if t.open == nil {
			t.open = map[string]*target{}
		}
		t.open[c.Key] = shared
	}
	l := &Lease[C]{member: member{target: shared}, of: t, config: c}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.services++
	l.tenant = shared.connections.join(c.Tenant)
	return l
}

// Client returns the client, and opens it the first time. It must not be
// used after Close.
func (l *Lease[C]) Client() (C, error) {
	l.opening.Lock()
	defer l.opening.Unlock()
	if l.client == nil {
		client, err := l.config.Open()
		if err != nil {
			return client, err
		}
		l.client, l.end = client, func() error { return l.config.Close(client) }
	}
	return l.client.(C), nil
}

// Close returns the share. The last one closes the client. A second call does
// nothing.
func (l *Lease[C]) Close() error {
	end := func() error { return nil }
	l.closed.Do(func() {
		if l.leave(l.of) {
			l.opening.Lock()
			defer l.opening.Unlock()
			if l.end != nil {
				end = l.end
			}
		}
	})
	return end()
}

// leave removes a member and reports whether it was the last one.
func (m *member) leave(of *Targets) (last bool) {
	of.mu.Lock()
	defer of.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.services--
	m.connections.leave(m.tenant)
	if m.services > 0 {
		return false
	}
	delete(of.open, m.key)
	return true
}

// Hold waits for one of the target's connections. The returned function returns
// it, with the error of the work on it, before Try's attempt ends. Hold fails
// when ctx ends and, with an error of class Retry, when the target goes down meanwhile.
func (m *member) Hold(ctx context.Context) (release func(error), err error) {
	m.mu.Lock()
	if e := m.refusal(m); e != nil {
		m.mu.Unlock()
		return nil, e
	}
	t := m.connections.request(m)
	m.mu.Unlock()
	select {
	case err = <-t.granted:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.connections.withdraw(t) {
			if err = <-t.granted; err == nil {
				m.connections.release(t)
			}
		}
		return nil, &Error{Class: Retry, Op: "wait for a connection", Err: context.Cause(ctx)}
	}
	if err != nil {
		return nil, err
	}
	return func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e, ok := errors.AsType[*Error](err); ok && e.Unreachable && ctx.Err() == nil {
			m.recordFailure(e) // before somebody else gets the connection
		}
		m.connections.recordResult(t, err)
		m.connections.release(t)
	}, nil
}
