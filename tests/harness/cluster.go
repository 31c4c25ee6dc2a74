package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is everything that a distributed project talks to.
type Cluster struct {
	T          testing.TB
	Brokers    []string
	Prefix     string
	Kafka      *kgo.Client
	Store      string
	Target     string // PostgreSQL of customers
	Clickhouse string
	Sent       map[string]*kgo.Record // source/partition/offset
	Shop       string                 // PostgreSQL with the table of the source stock; empty without one
}

// NewCluster makes everything but the topics, fresh for one test.
func NewCluster(t testing.TB) *Cluster {
	c := &Cluster{T: t, Store: servers.Postgres(t), Target: servers.Postgres(t)}
	c.Brokers, c.Prefix = servers.Kafka(t)
	c.Clickhouse, _ = servers.ClickHouseHTTP(t)
	return c.Connect()
}

// Connect makes the client of the brokers, until the test ends.
func (c *Cluster) Connect(options ...kgo.Opt) *Cluster {
	var err error
	// A topic that was just made is not known everywhere at once.
	c.Kafka, err = kgo.NewClient(append(options, kgo.SeedBrokers(c.Brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.UnknownTopicRetries(-1))...)
	require.NoError(c.T, err)
	c.T.Cleanup(c.Kafka.Close)
	c.Sent = map[string]*kgo.Record{}
	return c
}

// Topics creates topics.
func (c *Cluster) Topics(partitions int32, names ...string) {
	made, err := kadm.NewClient(c.Kafka).CreateTopics(c.T.Context(), partitions, 1, nil, names...)
	require.NoError(c.T, err)
	require.NoError(c.T, made.Error())
}

// Send produces events and remembers their offsets. The source is the last
// part of the topic's name.
func (c *Cluster) Send(records ...*kgo.Record) {
	c.T.Helper()
	require.NoError(c.T, c.TrySend(c.T.Context(), records...))
}

// TrySend is Send for any goroutine, up to the first failure.
func (c *Cluster) TrySend(ctx context.Context, records ...*kgo.Record) error {
	for _, result := range c.Kafka.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return result.Err
		}
		r := result.Record
		c.Sent[fmt.Sprintf("%s/%d/%d", r.Topic[strings.LastIndexByte(r.Topic, '.')+1:], r.Partition, r.Offset)] = r
	}
	return nil
}

// Model reads the inbox and returns what must be delivered; an error while an
// event is missing there.
func (c *Cluster) Model(config oracle.Config) (oracle.Expected, error) {
	inbox := ReadTopic(c.T, c.Brokers, c.Prefix+"weir.inbox")
	taken := map[string]bool{}
	identity := func(source string, r *kgo.Record) string {
		return fmt.Sprint(source, string(r.Key), Header(r, "ce_id"), string(r.Value))
	}
	events := ModelEvents(c.T, 1, inbox, func(h change.Origin) (string, map[string]string, []byte) {
		r := c.Sent[fmt.Sprintf("%s/%d/%d", h.Source, h.Partition, h.Offset)]
		require.NotNil(c.T, r, "the inbox has an event that nobody sent: %+v", h)
		taken[identity(h.Source, r)] = true
		return string(r.Key), map[string]string{"ce_id": Header(r, "ce_id")}, r.Value
	})
	for place, r := range c.Sent {
		source, _, _ := strings.Cut(place, "/")
		if !taken[identity(source, r)] {
			return nil, fmt.Errorf("%s is not in the inbox", place)
		}
	}
	return oracle.Run(config, events)
}

// Header is the value of a header, empty without it.
func Header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// DistributedMain, with DistributedAcme and DistributedBeta, is a configuration with
// three sources and every kind of sink; Distributed describes it to the model.
const DistributedMain = `
store: {postgres: {url: "%s"}}
gate: {valkey: {address: "%s", prefix: "%s"}}
kafka: {brokers: [%q], prefix: "%sweir", session_timeout: 3s}
sources:
  registry:
    kafka: {topic: "%[5]sregistry"}
    entity: key
    event_id: header:ce_id
    operation: op
    payload: data
    strip: ["updated_at", "**.trace_id", "items.*.seen_at"]
  lab:
    kafka: {topic: "%[5]slab"}
    entity: id
    mode: patch
    mount: lab
  overlay:
    kafka: {topic: "%[5]soverlay", frame_records: 1}
    entity: key
merge: {precedence: [overlay, registry, lab], required: [registry]}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
`

// DistributedAcme is the first customer, with short pauses between attempts.
const DistributedAcme = `
customer: acme
guard: off # entities come and go at random
projections:
  ripeness:
    when: doc.origin in ["EC", "CO"]
    fields:
      banana_id: id
      ripeness.level: lab.level
      kind: {const: banana}
    deliver:
      warehouse: {clickhouse: {url: "%s", table: acme_ripeness, linger: 20ms}, retry: {min_backoff: 20ms, max_backoff: 500ms}}
      hook: {webhook: {url: "%s", secret: "%s", timeout: 2s}, retry: {min_backoff: 20ms, max_backoff: 500ms}}
  list:
    fields: {banana_id: id, grade: {path: grade, default: none}}
    deliver:
      current: {postgres: {url: "%s", table: acme_list}, retry: {min_backoff: 20ms, max_backoff: 500ms}}
`

// DistributedBeta is the second customer, with short pauses between attempts.
const DistributedBeta = `
customer: beta
guard: off
projections:
  stock:
    fields: {id: id, weight: weight, items: "items.#.name", place: place}
    deliver:
      history: {postgres: {url: "%s", table: beta_stock, mode: append, columns: {doc: {type: json, path: "@this"}}}, retry: {min_backoff: 20ms, max_backoff: 500ms}}
      feed: {kafka: {topic: "%sfeed"}, retry: {min_backoff: 20ms, max_backoff: 500ms}}
`

// Distributed is the model of the distributed configuration.
func Distributed() oracle.Config {
	f := func(to, from string) oracle.Field { return oracle.Field{To: to, From: from} }
	return oracle.Config{
		Sources: []oracle.Source{
			{Name: "overlay", Entity: "key"},
			{Name: "registry", Entity: "key", EventID: "header:ce_id", Operation: "op", Payload: "data"},
			{Name: "lab", Entity: "id", Patch: true, Mount: "lab"},
		},
		Required: []string{"registry"},
		Strip:    map[string][]string{"registry": {"updated_at", "**.trace_id", "items.*.seen_at"}},
		Projection: []oracle.Projection{
			{
				Services: []string{"acme/ripeness@warehouse", "acme/ripeness@hook"},
				When:     func(d any) bool { o := oracle.At(d, "origin"); return o == "EC" || o == "CO" },
				Fields:   []oracle.Field{f("banana_id", "id"), f("ripeness.level", "lab.level"), {To: "kind", Const: "banana"}},
			},
			{Services: []string{"acme/list@current"}, Fields: []oracle.Field{f("banana_id", "id"), {To: "grade", From: "grade", Default: "none"}}},
			{
				Services: []string{"beta/stock@history", "beta/stock@feed"},
				Fields:   []oracle.Field{f("id", "id"), f("weight", "weight"), f("items", "items.#.name"), f("place", "place")},
			},
		},
	}
}

// Bananas makes events for the three sources.
func Bananas(r *rand.Rand, prefix string, n, entities int, serial *int) []*kgo.Record {
	var all []*kgo.Record
	for range n {
		*serial++
		id := fmt.Sprintf("B-%03d", r.IntN(entities))
		rec := &kgo.Record{Key: []byte(id)}
		switch roll := r.IntN(100); {
		case roll < 10:
			rec.Topic, rec.Value = prefix+"overlay", []byte(fmt.Sprintf(`{"grade":%q,"place":{"row":%d}}`, Pick(r, "I", "II"), r.IntN(4)))
			if r.IntN(4) == 0 {
				rec.Value = nil
			}
		case roll < 40:
			rec.Topic, rec.Value = prefix+"lab", []byte(fmt.Sprintf(`{"id":%q,"level":%s}`, id, Pick(r, "1", "2", "3", "null")))
		case roll < 45 && len(all) > 0:
			again := all[r.IntN(len(all))]
			rec = &kgo.Record{Topic: again.Topic, Key: again.Key, Value: again.Value, Headers: again.Headers}
		default:
			rec.Topic = prefix + "registry"
			rec.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: []byte(fmt.Sprint("e-", *serial))}}
			rec.Value = []byte(fmt.Sprintf(`{"data":{"updated_at":%d,"weight":%s,"id":%q,"origin":%q,"items":[{"name":%q,"seen_at":%d}],"place":{"shelf":%d,"trace_id":%d}}}`,
				*serial, Pick(r, "1", "1.0", "2"), id, Pick(r, "EC", "CO", "PH"), Pick(r, "a", "b"), *serial, r.IntN(2), *serial))
			if roll > 96 {
				rec.Value = nil
			} else if roll > 94 {
				rec.Value = []byte(`{"op":"delete"}`)
			}
		}
		all = append(all, rec)
	}
	return all
}

// Pick chooses a word.
func Pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

// Checks compares all sinks with the model.
func (c *Cluster) Checks(hook *Receiver) error {
	config := Distributed()
	if c.Shop != "" {
		config.Sources = append(config.Sources, oracle.Source{Name: "stock", Entity: "key", Sequence: "header:sequence", Mount: "stock"})
		config.Projection = append(config.Projection, oracle.Projection{Services: []string{"gamma/stock@rows"},
			Fields: []oracle.Field{{To: "id", From: "id"}, {To: "n", From: "stock.n"}}})
	}
	want, err := c.Model(config)
	if err != nil {
		return err
	}
	var problems []string
	note := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	attempts := hook.Received()
	note(oracle.CheckAttempts(want, "acme/ripeness@hook", attempts))
	note(oracle.CheckState(want, "acme/ripeness@hook", oracle.Newest(attempts)))
	note(oracle.CheckState(want, "acme/ripeness@warehouse", oracle.Newest(c.Warehouse("acme_ripeness"))))
	note(oracle.CheckState(want, "acme/list@current", oracle.Newest(c.Rows("acme_list", "acme/list@current", "entity"))))
	note(oracle.CheckLog(want, "beta/stock@history", c.Rows("beta_stock", "beta/stock@history", "seq")))
	note(oracle.CheckLog(want, "beta/stock@feed", c.Feed()))
	if c.Shop != "" {
		note(oracle.CheckLog(want, "gamma/stock@rows", c.Rows("gamma_stock", "gamma/stock@rows", "seq")))
		note(c.checkShop(want["gamma/stock@rows"]))
	}
	if problems != nil {
		return fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	return nil
}

// checkShop compares the rows of the table with the newest changes.
func (c *Cluster) checkShop(want map[string][]oracle.Change) error {
	conn, err := pgx.Connect(c.T.Context(), c.Shop)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(c.T.Context())) }()
	found, err := conn.Query(c.T.Context(), "SELECT id, n::text FROM stock")
	if err != nil {
		return err
	}
	rows := map[string]string{}
	var id, n string
	if _, err := pgx.ForEachRow(found, []any{&id, &n}, func() error { rows[id] = n; return nil }); err != nil {
		return err
	}
	for id, changes := range want {
		last := changes[len(changes)-1]
		n, there := rows[id]
		if shown := oracle.At(last.Doc, "n"); last.Op == "upsert" && (there != (shown != nil) || there && n != fmt.Sprint(shown)) {
			return fmt.Errorf("stock, entity %s: the row has %q, the customer %v", id, n, shown)
		}
	}
	return nil
}

// DistributedShop adds the source stock, a table of a database, to DistributedMain.
const DistributedShop = `
  shop:
    postgres: {url: %q, tables: {public.stock: {entity: id, source: stock, mount: stock}}}
merge:`

// DistributedGamma is the customer of the source stock.
const DistributedGamma = `
customer: gamma
guard: off
projections:
  stock:
    fields: {id: id, n: stock.n}
    deliver:
      rows: {postgres: {url: "%s", table: gamma_stock, mode: append, columns: {doc: {type: json, path: "@this"}}}, retry: {min_backoff: 20ms, max_backoff: 500ms}}
`

// Warehouse reads the newest row per entity from a table of the ClickHouse sink.
func (c *Cluster) Warehouse(table string) (all []oracle.Record) {
	options, err := clickhouse.ParseDSN(c.Clickhouse)
	require.NoError(c.T, err)
	conn, err := clickhouse.Open(options)
	require.NoError(c.T, err)
	defer conn.Close()
	rows, err := conn.Query(c.T.Context(), "SELECT entity, version, doc FROM "+table+" FINAL WHERE is_deleted = 0")
	if err != nil {
		return nil // no table yet
	}
	defer rows.Close()
	for rows.Next() {
		r := oracle.Record{Op: "upsert"}
		var doc string
		require.NoError(c.T, rows.Scan(&r.Entity, &r.Version, &doc))
		r.Doc = json.RawMessage(doc)
		all = append(all, r)
	}
	require.NoError(c.T, rows.Err())
	return all
}

// Rows reads a table of the PostgreSQL sinks.
func (c *Cluster) Rows(table, service, order string) []oracle.Record {
	ctx := c.T.Context()
	conn, err := pgx.Connect(ctx, c.Target)
	require.NoError(c.T, err)
	defer conn.Close(context.WithoutCancel(ctx))
	var all []oracle.Record
	rows, err := conn.Query(ctx, "SELECT service, entity, version, is_deleted, key, doc::text FROM "+table+" ORDER BY "+order)
	if err != nil && strings.Contains(err.Error(), "42P01") {
		return nil // no table yet
	}
	require.NoError(c.T, err)
	defer rows.Close()
	for rows.Next() {
		r := oracle.Record{Op: "upsert"}
		var version int64
		var deleted bool
		var doc *string
		require.NoError(c.T, rows.Scan(&r.Service, &r.Entity, &version, &deleted, &r.Key, &doc))
		r.Version = uint64(version)
		if deleted {
			r.Op = "retract"
		} else {
			r.Doc = json.RawMessage(*doc)
		}
		all = append(all, r)
	}
	require.NoError(c.T, rows.Err())
	return all
}

// Feed reads the Kafka sink's topic as readers do that look at no key.
func (c *Cluster) Feed() []oracle.Record {
	var all []oracle.Record
	for _, r := range ReadTopic(c.T, c.Brokers, c.Prefix+"feed") {
		var rec oracle.Record
		require.NoError(c.T, json.Unmarshal(r.Value, &rec))
		require.Equal(c.T, rec.Entity, string(r.Key))
		require.Equal(c.T, rec.Key, Header(r, "weir-key"))
		all = append(all, rec)
	}
	return all
}

// Record makes a record of Kafka.
func Record(topic, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
}
