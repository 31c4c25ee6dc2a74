package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
)

// reconnectPause keeps an unreachable server from being dialled for every event.
const reconnectPause = time.Second

// ErrClosed is the error of a gate after Close.
var ErrClosed = errors.New("gate is closed")

// ValkeyOptions configure a Valkey. Its values are those of a checked configuration.
type ValkeyOptions struct {
	// Addresses are host:port of a server, or, if there are several, of some nodes
	// of a cluster.
	Addresses []string
	// Username and Password authenticate, if given.
	Username, Password string
	// TLS switches to TLS, if given.
	TLS *tls.Config
	// DB is the number of the database, 0 in a cluster.
	DB int
	// Prefix begins every key. Gates that share a server and a
	// prefix share their marks.
	Prefix string
	// TTL is how long a mark lasts, a whole number of milliseconds.
	TTL time.Duration
	// Timeout bounds each call. The one call that connects may take longer: the
	// client library takes no context for that, so Timeout then bounds each of
	// its steps (dial, TLS, greeting) at each address. Calls beside it do not
	// wait longer than Timeout for it.
	Timeout time.Duration
}

// Valkey is a gate that any number of processes share. Its marks are as durable as the
// server: a server that loses its data lets events through
// again, which costs work, never correctness. It connects at its first use and
// again after a failure, so that a missing server keeps nothing
// from starting. Any number of goroutines may use it.
type Valkey struct {
	prefix  string
	ttl     time.Duration
	timeout time.Duration
	option  valkey.ClientOption

	connecting chan struct{} // held by the one goroutine that connects

	mu      sync.Mutex
	client  valkey.Client // nil until connected
	failed  error         // of the last attempt to connect
	retryAt time.Time
	closed  bool
}

var _ Gate = (*Valkey)(nil)

// NewValkey does not connect.
func NewValkey(o ValkeyOptions) *Valkey {
	return &Valkey{
		prefix:     o.Prefix,
		ttl:        o.TTL,
		timeout:    o.Timeout,
		connecting: make(chan struct{}, 1),
		option: valkey.ClientOption{
			InitAddress:       o.Addresses,
			ForceSingleClient: len(o.Addresses) == 1,
			Username:          o.Username,
			Password:          o.Password,
			TLSConfig:         o.TLS,
			SelectDB:          o.DB,
			ClientName:        "weir-gate",
			Dialer:            net.Dialer{Timeout: o.Timeout},
			ConnWriteTimeout:  o.Timeout,
			DisableCache:      true,
			DisableRetry:      true, // an open gate is better than a slow one
		},
	}
}

// key names an entry. The length of the source makes it unambiguous.
func (v *Valkey) key(e Entry) string {
	return v.prefix + ":" + strconv.Itoa(len(e.Source)) + ":" + e.Source + ":" + e.EventID
}

// Seen implements Gate: one MGET, or one for each slot of a cluster.
func (v *Valkey) Seen(ctx context.Context, entries []Entry) ([]bool, error) {
	seen := make([]bool, len(entries))
	err := v.do(ctx, "seen", func(ctx context.Context, client valkey.Client) error {
		keys := make([]string, len(entries))
		for i := range entries {
			keys[i] = v.key(entries[i])
		}
		values, err := valkey.MGet(client, ctx, keys)
		if err != nil {
			return err
		}
		for i, k := range keys {
			value := values[k]
			if value.IsNil() {
				continue
			}
			hash, err := value.ToString()
			if err != nil {
				return err
			}
			seen[i] = hash == string(entries[i].Hash[:])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return seen, nil
}

// Mark implements Gate: one pipeline. After an error some entries may be
// marked.
func (v *Valkey) Mark(ctx context.Context, entries []Entry) error {
	return v.do(ctx, "mark", func(ctx context.Context, client valkey.Client) error {
		commands := make(valkey.Commands, len(entries))
		for i, e := range entries {
			commands[i] = client.B().Set().Key(v.key(e)).Value(string(e.Hash[:])).Px(v.ttl).Build()
		}
		for _, r := range client.DoMulti(ctx, commands...) {
			if err := r.Error(); err != nil {
				return err // the others of a pipeline say the same
			}
		}
		return nil
	})
}

// Ping implements Gate.
func (v *Valkey) Ping(ctx context.Context) error {
	return v.do(ctx, "ping", func(ctx context.Context, client valkey.Client) error {
		return client.Do(ctx, client.B().Ping().Build()).Error()
	})
}

// do runs one call within the time-out.
func (v *Valkey) do(ctx context.Context, op string, f func(context.Context, valkey.Client) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, v.timeout, fmt.Errorf("no answer within %v", v.timeout))
	defer cancel()
	client, err := v.connect(ctx)
	if err == nil {
		err = f(ctx, client)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
	return fmt.Errorf("valkey gate: %s: %w", op, err)
}

// connect returns the client, after making it when there is none yet. Waiting
// for another goroutine that makes it ends with ctx; making it does not, see
// ValkeyOptions.Timeout.
func (v *Valkey) connect(ctx context.Context) (valkey.Client, error) {
	if client, err, ok := v.state(); ok {
		return client, err
	}
	select {
	case v.connecting <- struct{}{}:
		defer func() { <-v.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if client, err, ok := v.state(); ok { // another goroutine was faster
		return client, err
	}
	client, err := valkey.NewClient(v.option)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err != nil:
		v.failed, v.retryAt = err, time.Now().Add(reconnectPause)
		return nil, err
	case v.closed:
		client.Close()
		return nil, ErrClosed
	}
	v.client = client
	return client, nil
}

// state returns client or error without connecting; ok is false when it is time to connect.
func (v *Valkey) state() (client valkey.Client, err error, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return nil, ErrClosed, true
	case v.client != nil:
		return v.client, nil, true
	case v.failed != nil && time.Now().Before(v.retryAt):
		return nil, v.failed, true
	}
	return nil, nil, false
}

// Close ends the connections. Calls that are under way may fail.
func (v *Valkey) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	if v.client != nil {
		v.client.Close()
		v.client = nil
	}
	return nil
}
