package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
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

// ValkeyOptions configure a Valkey. Its values must come from a checked configuration.
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
	// TTL is how long a mark lasts at least, a whole number of milliseconds; at most twice that.
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

// How marks are stored: a mark is a field of a hash, so one frame takes one command per hash in
// place of one per mark. The time is divided into periods of TTL. Each has a set of hashes, which
// expire together, so a mark lasts from one to two TTL. A set is parts hashes: they spread over
// the slots of a cluster, and none is so large that its removal stops the server.
const (
	parts = 16
	// skew is how far the clocks of processes may differ. Beyond it, an id that is reused with
	// other content by turns, at the moment one period ends, may count as a repetition.
	skew = 5 * time.Minute
)

// periods returns the numbers of the periods in which a mark that is valid now may be, the
// newest first.
func (v *Valkey) periods(now time.Time) []int64 {
	var all []int64
	for _, at := range []time.Time{now.Add(skew), now, now.Add(-v.ttl)} {
		if n := at.UnixMilli() / v.ttl.Milliseconds(); len(all) == 0 || all[len(all)-1] != n {
			all = append(all, n)
		}
	}
	return all
}

// key names the hash of a part in a period.
func (v *Valkey) key(period int64, part int) string {
	return v.prefix + ":" + strconv.FormatInt(period, 10) + ":" + strconv.Itoa(part)
}

// field names an entry in its hash. The length of the source makes it unambiguous.
func field(e Entry) string { return strconv.Itoa(len(e.Source)) + ":" + e.Source + ":" + e.EventID }

// part is a group of entries in one hash.
type part struct {
	number  int
	entries []int // indices
	fields  []string
}

// split groups entries by part, in their order.
func split(entries []Entry) []part {
	var byNumber [parts]part
	for i, e := range entries {
		f := field(e)
		p := &byNumber[crc32.ChecksumIEEE([]byte(f))%parts]
		p.entries, p.fields = append(p.entries, i), append(p.fields, f)
	}
	var all []part
	for n, p := range byNumber {
		if len(p.entries) > 0 {
			p.number = n
			all = append(all, p)
		}
	}
	return all
}

// Seen implements Gate: one pipeline. An entry is seen if all its marks have its hash: periods of
// processes whose clocks differ do not tell which of two marks is the later.
func (v *Valkey) Seen(ctx context.Context, entries []Entry) ([]bool, error) {
	seen := make([]bool, len(entries))
	err := v.do(ctx, "seen", func(ctx context.Context, client valkey.Client) error {
		groups, periods := split(entries), v.periods(time.Now())
		commands := make(valkey.Commands, 0, len(groups)*len(periods))
		for _, g := range groups {
			for _, n := range periods {
				commands = append(commands, client.B().Hmget().Key(v.key(n, g.number)).Field(g.fields...).Build())
			}
		}
		differs := make([]bool, len(entries))
		for n, r := range client.DoMulti(ctx, commands...) {
			values, err := r.ToArray()
			if err != nil {
				return err
			}
			for k, i := range groups[n/len(periods)].entries {
				if values[k].IsNil() {
					continue
				}
				hash, err := values[k].ToString()
				if err != nil {
					return err
				}
				seen[i] = true
				differs[i] = differs[i] || hash != string(entries[i].Hash[:])
			}
		}
		for i, d := range differs {
			seen[i] = seen[i] && !d
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
		period := time.Now().UnixMilli() / v.ttl.Milliseconds()
		var commands valkey.Commands
		for _, g := range split(entries) {
			key := v.key(period, g.number)
			set := client.B().Hset().Key(key).FieldValue()
			for k, i := range g.entries {
				set = set.FieldValue(g.fields[k], string(entries[i].Hash[:]))
			}
			commands = append(commands, set.Build(),
				client.B().Pexpire().Key(key).Milliseconds((2*v.ttl + skew).Milliseconds()).Build())
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

// connect returns the client, and creates it first if necessary. Waiting for another goroutine
// that creates it ends with ctx. The creation itself does not, see ValkeyOptions.Timeout.
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
