package assemble

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	clickhousedriver "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Reached is what came of asking one thing that a configuration names.
type Reached struct {
	// What it is: store, gate, kafka, source NAME, or a service.
	What string `json:"what"`
	// Error is empty when it answers, or is there.
	Error string `json:"error,omitempty"`
}

// resolveTimeout bounds the answer of each.
const resolveTimeout = 10 * time.Second

// Resolve asks everything that a configuration names whether it is there: servers
// for an answer under the configured user, files whether they can be read or made.
// It changes nothing: no table, no topic, no request to a webhook. The order is that
// of the configuration. References must have been resolved when it was loaded.
func Resolve(ctx context.Context, c *config.Config) []Reached {
	type question struct {
		what string
		ask  func(ctx context.Context) error
	}
	var all []question
	ask := func(what string, f func(ctx context.Context) error) { all = append(all, question{what, f}) }
	ask("store", func(ctx context.Context) error {
		if p := c.Store.Postgres; p != nil {
			return askPostgres(ctx, p.URL.Reveal())
		}
		return askFolder(c.Store.SQLite.Path)
	})
	if c.Gate.Valkey != nil {
		ask("gate", func(ctx context.Context) error {
			g, err := Gate(c)
			if err != nil {
				return err
			}
			return errors.Join(g.Ping(ctx), g.Close())
		})
	}
	if len(c.Kafka.Brokers) > 0 {
		ask("kafka", func(ctx context.Context) error { return askKafka(ctx, c, c.Kafka.Cluster, c.Kafka.Inbox.Topic, true) })
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		switch {
		case s.File != nil:
			ask("source "+s.Name, func(context.Context) error {
				f, err := os.Open(s.File.Path)
				if err != nil {
					return err
				}
				return f.Close()
			})
		case s.Outbox != nil:
			ask("source "+s.Name, func(ctx context.Context) error { return askPostgres(ctx, s.Outbox.URL.Reveal()) })
		case s.Kafka != nil && (len(s.Kafka.Brokers) > 0 || len(c.Kafka.Brokers) > 0):
			ask("source "+s.Name, func(ctx context.Context) error { return askKafka(ctx, c, s.Kafka.Cluster, s.Kafka.Topic, false) })
		}
	}
	for _, s := range c.Services() {
		d := s.Delivery
		switch {
		case d.File != nil:
			ask(s.Name, func(context.Context) error { return askFolder(d.File.Path) })
		case d.Webhook != nil:
			ask(s.Name, func(ctx context.Context) error { return askWebhook(ctx, d.Webhook) })
		case d.Kafka != nil && (len(d.Kafka.Brokers) > 0 || len(c.Kafka.Brokers) > 0):
			ask(s.Name, func(ctx context.Context) error { return askKafka(ctx, c, d.Kafka.Cluster, d.Kafka.Topic, true) })
		case d.ClickHouse != nil:
			ask(s.Name, func(ctx context.Context) error { return askClickHouse(ctx, d.ClickHouse.URL.Reveal()) })
		case d.Postgres != nil:
			ask(s.Name, func(ctx context.Context) error { return askPostgres(ctx, d.Postgres.URL.Reveal()) })
		}
	}
	found := make([]Reached, len(all))
	few := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i, q := range all {
		few <- struct{}{}
		wg.Go(func() {
			defer func() { <-few }()
			ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
			defer cancel()
			found[i].What = q.what
			if err := q.ask(ctx); err != nil {
				found[i].Error = strings.Join(strings.Fields(err.Error()), " ")
			}
		})
	}
	wg.Wait()
	return found
}

func askPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(context.WithoutCancel(ctx)))
}

func askClickHouse(ctx context.Context, url string) error {
	options, err := clickhousedriver.ParseDSN(url)
	if err != nil {
		return errors.New("the URL cannot be read") // its error may hold the password
	}
	conn, err := clickhousedriver.Open(options)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close())
}

// askKafka asks a cluster for a topic, which may be missing where it is made by need.
func askKafka(ctx context.Context, c *config.Config, of config.Cluster, topic string, made bool) error {
	if len(of.Brokers) == 0 {
		of = c.Kafka.Cluster
	}
	cluster, _, err := Cluster(c, of, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	admin, err := transport.NewAdmin(cluster)
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.TopicID(ctx, topic)
	if made && errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return err
}

// askWebhook connects, with TLS where the URL wants it, and sends nothing.
func askWebhook(ctx context.Context, w *config.WebhookSink) error {
	u, err := url.Parse(w.URL.Reveal())
	if err != nil {
		return errors.New("the URL cannot be read")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	address := net.JoinHostPort(u.Hostname(), port)
	var conn net.Conn
	if u.Scheme == "https" {
		settings, _, err := ClientTLS(w.TLS)
		if err != nil {
			return err
		}
		dialer := tls.Dialer{Config: settings}
		conn, err = dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// askFolder reports whether a file is there and can be written, or could be made:
// the nearest folder above it that exists must take it.
func askFolder(path string) error {
	const mayWrite, mayEnter = 2, 1
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s: %w", path, syscall.EISDIR)
		}
		if err := syscall.Access(path, mayWrite); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
		case err == nil:
			if err := syscall.Access(dir, mayWrite|mayEnter); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			return nil
		case filepath.Dir(dir) == dir:
			return err
		}
	}
}
