package pipeline

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// world is the environment of a benchmark.
type world struct {
	main    string             // the main file without customers
	sink    func(i int) string // the sink of service i
	servers []string           // whose processor time is told
	topics  topics             // with Kafka sinks
	// prepare makes the targets of the sinks; fill appends events to the source.
	prepare func(b *testing.B, services int)
	fill    func(b *testing.B, events []event)
}

// topics is where another program finds the events, and delivers to.
type topics struct {
	brokers []string
	source  string
	sink    func(i int) string
}

const benchSource = `
    entity: id
    event_id: event
    payload: data
    strip: [updated_at]
customers: ["customers/*.yaml"]
limits: {memory: 512MiB}
admin: {listen: "off"}
api: {listen: "127.0.0.1:0"}
log: {level: warn}
`

// embedded is the pipeline alone: broker on disk with synced writes, SQLite,
// gate in memory, a file as source and file sinks.
func embeddedWorld(b *testing.B, dir string) world {
	path := filepath.Join(dir, "events.jsonl")
	return world{
		main: "sources:\n  registry:\n    file: {path: events.jsonl}" + benchSource,
		sink: func(i int) string { return fmt.Sprintf("{file: {path: ../out/c%d.jsonl}}", i) },
		fill: func(b *testing.B, events []event) {
			var all bytes.Buffer
			for _, e := range events {
				all.Write(e.json)
				all.WriteByte('\n')
			}
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			require.NoError(b, err)
			_, err = f.Write(all.Bytes())
			require.NoError(b, err)
			require.NoError(b, f.Close())
		},
	}
}

// realWorld is the pipeline with Kafka, PostgreSQL and Valkey, a Kafka topic
// as source, and sinks of one kind: kafka, postgres or clickhouse.
func realWorld(b *testing.B, kind string) world {
	brokers, prefix := servers.Kafka(b)
	storeURL := servers.Postgres(b)
	valkey, valkeyPrefix := servers.Valkey(b)
	k := transport.Config{Brokers: brokers, Logger: slog.New(slog.DiscardHandler)}
	topic := prefix + "source"
	producer, err := transport.NewProducer(k, transport.ProducerConfig{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, producer.Close(context.WithoutCancel(b.Context()))) })
	ensure := func(b *testing.B, specs ...transport.TopicSpec) {
		admin, err := transport.NewAdmin(k)
		require.NoError(b, err)
		defer admin.Close()
		require.NoError(b, admin.EnsureTopics(b.Context(), specs))
	}
	w := world{
		main: fmt.Sprintf(`store: {postgres: {url: "%s"}}
gate: {valkey: {address: "%s", prefix: "%s"}}
kafka: {brokers: ["%s"], prefix: "%sweir"}
sources:
  registry:
    kafka: {topic: %s}%s`, storeURL, valkey, valkeyPrefix, strings.Join(brokers, `", "`), prefix, topic, benchSource),
		servers: []string{"kafka", "postgres", "valkey"},
		prepare: func(b *testing.B, _ int) {
			ensure(b, transport.TopicSpec{Name: topic, Partitions: 8, Replication: 1})
		},
		fill: func(b *testing.B, events []event) {
			for len(events) > 0 {
				n := min(len(events), 10_000)
				records := make([]transport.Record, n)
				for i, e := range events[:n] {
					records[i] = transport.Record{Topic: topic, Key: []byte(e.key), Value: e.json}
				}
				require.NoError(b, producer.Append(b.Context(), records))
				events = events[n:]
			}
		},
	}
	switch kind {
	case "kafka":
		name := func(i int) string { return fmt.Sprintf("%sout.c%d", prefix, i) }
		w.sink = func(i int) string { return fmt.Sprintf("{kafka: {topic: %s}}", name(i)) }
		w.topics = topics{brokers, topic, name}
		source := w.prepare
		w.prepare = func(b *testing.B, services int) {
			source(b, services)
			specs := make([]transport.TopicSpec, services)
			for i := range specs {
				specs[i] = transport.TopicSpec{Name: name(i), Partitions: 2, Replication: 1}
			}
			ensure(b, specs...)
		}
	case "postgres":
		url := servers.Postgres(b)
		w.sink = func(i int) string { return fmt.Sprintf(`{postgres: {url: "%s", table: c%d}}`, url, i) }
	case "clickhouse":
		dsn, _ := servers.ClickHouseHTTP(b)
		w.sink = func(i int) string { return fmt.Sprintf(`{clickhouse: {url: "%s", table: c%d}}`, dsn, i) }
		w.servers = append(w.servers, "chdb")
	}
	return w
}

// hook is a sink that calls url.
func hook(url string) func(int) string {
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("s"), 32))
	return func(int) string { return fmt.Sprintf(`{webhook: {url: "%s", secret: "%s"}}`, url, secret) }
}

// open writes the configuration and opens the pipeline.
func (w world) open(b *testing.B, dir string, s *stream) *Pipeline {
	b.Helper()
	files := s.customers(w.sink)
	files["weir.yaml"] = w.main
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(b, os.WriteFile(path, []byte(text), 0o600))
	}
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(b, err)
	p, err := Open(b.Context(), Options{
		Config: c, Roles: AllRoles, UntilIdle: true, Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(b, err)
	return p
}
