package transport

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Config says how to reach a cluster. It is shared by groups, producers and
// admins and is not changed by them.
type Config struct {
	Brokers []string     // host:port, at least one
	TLS     *tls.Config  // nil: no TLS
	SASL    SASL         // zero: no authentication
	Logger  *slog.Logger // Defaults to slog.Default()
	// more are options of tests.
	more []kgo.Opt
}

// SASL authenticates to the brokers.
type SASL struct {
	Mechanism string // "plain", "scram-sha-256" or "scram-sha-512"; "" is none
	User      string
	Password  string // never logged
}

func (c Config) logger() *slog.Logger { return cmp.Or(c.Logger, slog.Default()) }

// clientID is shown in the brokers' logs and quotas.
const clientID = "weir"

// dialTimeout is less than kgo's 10 s, for which a dead broker would stall the rest.
const dialTimeout = 5 * time.Second

// NewClientOpts returns the kgo options that every client of c starts with. It fails on an empty
// broker list and on an unknown SASL mechanism. It does not touch the network.
func NewClientOpts(c Config) ([]kgo.Opt, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers configured")
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(clientID),
		kgo.WithLogger(newClientLog(c.logger())),
		// New topics and moved leaders are noticed within seconds, not minutes.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(MetadataMaxAge),
		kgo.DialTimeout(dialTimeout),
		kgo.RetryBackoffFn(retryBackoff),
	}
	opts = append(opts, c.more...)
	if c.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(c.TLS.Clone()))
	}
	switch c.SASL.Mechanism {
	case "":
	case "plain":
		opts = append(opts, kgo.SASL(plain.Auth{User: c.SASL.User, Pass: c.SASL.Password}.AsMechanism()))
	case "scram-sha-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: c.SASL.User, Pass: c.SASL.Password}.AsSha256Mechanism()))
	case "scram-sha-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: c.SASL.User, Pass: c.SASL.Password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("kafka: unknown SASL mechanism %q (plain, scram-sha-256, scram-sha-512)", c.SASL.Mechanism)
	}
	return opts, nil
}

// newClient makes a client of a cluster. It does not touch the network yet.
func newClient(c Config, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := NewClientOpts(c)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(opts, more...)...)
}

// MetadataMaxAge is how long clients cache the metadata of a topic:
// partitions that are added to one are read after that time at the latest.
const MetadataMaxAge = 10 * time.Second

func retryBackoff(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 5), 2*time.Second)
}

// logLimiter lets one line per kind and period through, so that a broken cluster
// does not flood the log.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu
}

const quietPeriod = 10 * time.Second

// There are few kinds of lines. This bounds the memory in any case.
const quietKinds = 256

func (l *logLimiter) allow(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if t, ok := l.last[kind]; ok && now.Sub(t) < quietPeriod {
		return false
	}
	if l.last == nil || len(l.last) >= quietKinds {
		l.last = make(map[string]time.Time)
	}
	l.last[kind] = now
	return true
}

// clientLog passes warnings of kgo to the debug log, each message once per period: outages
// have log lines of their own. kgo logs names and numbers, no payloads and no credentials;
// brokers' words are bounded.
type clientLog struct {
	log   *slog.Logger
	quiet *logLimiter
}

func newClientLog(log *slog.Logger) *clientLog {
	return &clientLog{log: log, quiet: &logLimiter{}}
}

func (l *clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l *clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if !l.quiet.allow(msg) {
		return
	}
	for i, v := range keyvals {
		if err, is := v.(error); is {
			keyvals[i] = reason.Of(err)
		}
	}
	l.log.Debug("kafka client: "+msg, append([]any{"event", "kafka.client", "severity", level.String()}, keyvals...)...)
}
