package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/seed-86dfc502/weir/internal/testservers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is everything that a distributed project talks to.
type cluster struct {
	t          testing.TB
	brokers    []string
	prefix     string
	kafka      *kgo.Client
	store      string
	target     string // PostgreSQL of customers
	clickhouse string
	sent       map[string]*kgo.Record // source/partition/offset
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{t: t, store: testservers.Postgres(t), target: testservers.Postgres(t), sent: map[string]*kgo.Record{}}
	c.brokers, c.prefix = testservers.Kafka(t)
	c.clickhouse, _ = testservers.ClickHouseHTTP(t)
	var err error
	c.kafka, err = kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(t, err)
	t.Cleanup(c.kafka.Close)
	return c
}

func (c *cluster) topics(partitions int32, names ...string) {
	made, err := kadm.NewClient(c.kafka).CreateTopics(c.t.Context(), partitions, 1, nil, names...)
	require.NoError(c.t, err)
	require.NoError(c.t, made.Error())
}

// send produces events and remembers where they stand. The source is the last
// part of the topic's name.
func (c *cluster) send(records ...*kgo.Record) {
	c.t.Helper()
	for _, result := range c.kafka.ProduceSync(c.t.Context(), records...) {
		require.NoError(c.t, result.Err)
		r := result.Record
		c.sent[fmt.Sprintf("%s/%d/%d", r.Topic[strings.LastIndexByte(r.Topic, '.')+1:], r.Partition, r.Offset)] = r
	}
}

// model reads the inbox and gives what must be delivered; an error while an
// event is missing there.
func (c *cluster) model(config model.Config) (model.Expected, error) {
	inbox := readTopic(c.t, c.brokers, c.prefix+"weir.inbox")
	taken := map[string]bool{}
	identity := func(source string, r *kgo.Record) string {
		return fmt.Sprint(source, string(r.Key), header(r, "ce_id"), string(r.Value))
	}
	events := modelEvents(c.t, 1, inbox, func(h inboxHead) (string, map[string]string, []byte) {
		r := c.sent[fmt.Sprintf("%s/%d/%d", h.Source, h.Partition, h.Offset)]
		require.NotNil(c.t, r, "the inbox has an event that nobody sent: %+v", h)
		taken[identity(h.Source, r)] = true
		return string(r.Key), map[string]string{"ce_id": header(r, "ce_id")}, r.Value
	})
	for place, r := range c.sent {
		source, _, _ := strings.Cut(place, "/")
		if !taken[identity(source, r)] {
			return nil, fmt.Errorf("%s is not in the inbox", place)
		}
	}
	return model.Run(config, events)
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

const distributedMain = `
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
    kafka: {topic: "%[5]soverlay", window: 1}
    entity: key
merge: {precedence: [overlay, registry, lab], required: [registry]}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
`

const distributedAcme = `
customer: acme
projections:
  ripeness:
    when: doc.origin in ["EC", "CO"]
    fields:
      banana_id: id
      ripeness.level: lab.level
      kind: {const: banana}
    deliver:
      warehouse: {clickhouse: {url: "%s", table: acme_ripeness, linger: 20ms}}
      hook: {webhook: {url: "%s", secret: "%s"}, retry: {min_backoff: 20ms, max_backoff: 200ms}}
  list:
    fields: {banana_id: id, grade: {path: grade, default: none}}
    deliver:
      current: {postgres: {url: "%s", table: acme_list}}
`

const distributedBeta = `
customer: beta
projections:
  stock:
    fields: {id: id, weight: weight, items: "items.#.name", place: place}
    deliver:
      history: {postgres: {url: "%s", table: beta_stock, mode: append, columns: {doc: {type: json, path: "@this"}}}}
      feed: {kafka: {topic: "%sfeed"}}
`

func distributed() model.Config {
	f := func(to, from string) model.Field { return model.Field{To: to, From: from} }
	return model.Config{
		Sources: []model.Source{
			{Name: "overlay", Entity: "key"},
			{Name: "registry", Entity: "key", EventID: "header:ce_id", Operation: "op", Payload: "data"},
			{Name: "lab", Entity: "id", Patch: true, Mount: "lab"},
		},
		Required: []string{"registry"},
		Strip:    map[string][]string{"registry": {"updated_at", "**.trace_id", "items.*.seen_at"}},
		Projection: []model.Projection{
			{
				Services: []string{"acme/ripeness@warehouse", "acme/ripeness@hook"},
				When:     func(d any) bool { o := model.At(d, "origin"); return o == "EC" || o == "CO" },
				Fields:   []model.Field{f("banana_id", "id"), f("ripeness.level", "lab.level"), {To: "kind", Const: "banana"}},
			},
			{Services: []string{"acme/list@current"}, Fields: []model.Field{f("banana_id", "id"), {To: "grade", From: "grade", Default: "none"}}},
			{
				Services: []string{"beta/stock@history", "beta/stock@feed"},
				Fields:   []model.Field{f("id", "id"), f("weight", "weight"), f("items", "items.#.name"), f("place", "place")},
			},
		},
	}
}

// bananas makes events for the three sources.
func bananas(r *rand.Rand, prefix string, n, entities int, serial *int) []*kgo.Record {
	var all []*kgo.Record
	for range n {
		*serial++
		id := fmt.Sprintf("B-%03d", r.IntN(entities))
		rec := &kgo.Record{Key: []byte(id)}
		switch roll := r.IntN(100); {
		case roll < 10:
			rec.Topic, rec.Value = prefix+"overlay", []byte(fmt.Sprintf(`{"grade":%q,"place":{"row":%d}}`, pick(r, "I", "II"), r.IntN(4)))
			if r.IntN(4) == 0 {
				rec.Value = nil
			}
		case roll < 40:
			rec.Topic, rec.Value = prefix+"lab", []byte(fmt.Sprintf(`{"id":%q,"level":%s}`, id, pick(r, "1", "2", "3", "null")))
		case roll < 45 && len(all) > 0:
			again := all[r.IntN(len(all))]
			rec = &kgo.Record{Topic: again.Topic, Key: again.Key, Value: again.Value, Headers: again.Headers}
		default:
			rec.Topic = prefix + "registry"
			rec.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: []byte(fmt.Sprint("e-", *serial))}}
			rec.Value = []byte(fmt.Sprintf(`{"data":{"updated_at":%d,"weight":%s,"id":%q,"origin":%q,"items":[{"name":%q,"seen_at":%d}],"place":{"shelf":%d,"trace_id":%d}}}`,
				*serial, pick(r, "1", "1.0", "2"), id, pick(r, "EC", "CO", "PH"), pick(r, "a", "b"), *serial, r.IntN(2), *serial))
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

func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

// checks compares all sinks with the model.
func (c *cluster) checks(hook *receiver) error {
	want, err := c.model(distributed())
	if err != nil {
		return err
	}
	var problems []string
	note := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	attempts := hook.received()
	note(model.CheckAttempts(want, "acme/ripeness@hook", attempts))
	note(model.CheckState(want, "acme/ripeness@hook", model.Newest(attempts)))
	note(model.CheckState(want, "acme/ripeness@warehouse", c.warehouse()))
	note(model.CheckState(want, "acme/list@current", model.Newest(c.rows("acme_list", "acme/list@current", "entity"))))
	note(model.CheckLog(want, "beta/stock@history", c.rows("beta_stock", "beta/stock@history", "seq")))
	note(model.CheckLog(want, "beta/stock@feed", c.feed()))
	if problems != nil {
		return fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	return nil
}

func (c *cluster) warehouse() map[string]model.Record {
	options, err := clickhouse.ParseDSN(c.clickhouse)
	require.NoError(c.t, err)
	conn, err := clickhouse.Open(options)
	require.NoError(c.t, err)
	defer conn.Close()
	state := map[string]model.Record{}
	rows, err := conn.Query(c.t.Context(), "SELECT entity, version, doc FROM acme_ripeness FINAL WHERE is_deleted = 0")
	if err != nil {
		return state // no table yet
	}
	defer rows.Close()
	for rows.Next() {
		r := model.Record{Op: "upsert"}
		var doc string
		require.NoError(c.t, rows.Scan(&r.Entity, &r.Version, &doc))
		r.Doc = json.RawMessage(doc)
		state[r.Entity] = r
	}
	require.NoError(c.t, rows.Err())
	return state
}

func (c *cluster) rows(table, service, order string) []model.Record {
	ctx := c.t.Context()
	conn, err := pgx.Connect(ctx, c.target)
	require.NoError(c.t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	var all []model.Record
	rows, err := conn.Query(ctx, "SELECT service, entity, version, is_deleted, key, doc::text FROM "+table+" ORDER BY "+order)
	require.NoError(c.t, err)
	defer rows.Close()
	for rows.Next() {
		r := model.Record{Op: "upsert"}
		var version int64
		var deleted bool
		var doc *string
		require.NoError(c.t, rows.Scan(&r.Service, &r.Entity, &version, &deleted, &r.Key, &doc))
		r.Version = uint64(version)
		if deleted {
			r.Op = "retract"
		} else {
			r.Doc = json.RawMessage(*doc)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil && strings.Contains(err.Error(), "42P01") {
		return nil // no table yet
	}
	require.NoError(c.t, rows.Err())
	return all
}

// feed reads the Kafka sink's topic without the repetitions that its readers
// are told to expect.
func (c *cluster) feed() []model.Record {
	var all []model.Record
	seen := map[string]bool{}
	for _, r := range readTopic(c.t, c.brokers, c.prefix+"feed") {
		var rec model.Record
		require.NoError(c.t, json.Unmarshal(r.Value, &rec))
		require.Equal(c.t, rec.Entity, string(r.Key))
		require.Equal(c.t, rec.Key, header(r, "weir-key"))
		if !seen[rec.Key] {
			seen[rec.Key] = true
			all = append(all, rec)
		}
	}
	return all
}

// I1, I2, I3, I4, I5, I11: two processes share the work over real servers, one
// is killed under load and comes back; every sink ends as the model says.
func TestTwoProcessesAndAKill(t *testing.T) {
	c := newCluster(t)
	valkey, keys := testservers.Valkey(t)
	hook := newReceiver(t)
	p := newProject(t, map[string]string{
		"weir.yaml":           fmt.Sprintf(distributedMain, c.store, valkey, keys, c.brokers[0], c.prefix),
		"customers/acme.yaml": fmt.Sprintf(distributedAcme, c.clickhouse, hook.url(), webhookSecret, c.target),
		"customers/beta.yaml": fmt.Sprintf(distributedBeta, c.target, c.prefix),
	})
	c.topics(4, c.prefix+"registry", c.prefix+"lab", c.prefix+"overlay", c.prefix+"feed")
	r, serial := rand.New(rand.NewPCG(3, 3)), 0
	c.send(bananas(r, c.prefix, 1500, 150, &serial)...)

	a, b := p.start("run"), p.start("run")
	eventually(t, "both processes decide and deliver", func() error {
		c.send(bananas(r, c.prefix, 40, 150, &serial)...)
		for _, pr := range []*process{a, b} {
			require.False(t, pr.ended(), tail(pr.log.String(), 60))
			if pr.metric("weir_events_total") == 0 || pr.metric("weir_deliveries_total", `outcome="delivered"`) == 0 {
				return fmt.Errorf("not yet")
			}
		}
		return nil
	})
	for range 10 {
		c.send(bananas(r, c.prefix, 100, 150, &serial)...)
	}
	a.kill()
	for range 10 {
		c.send(bananas(r, c.prefix, 100, 150, &serial)...)
	}
	a = p.start("run")
	c.send(bananas(r, c.prefix, 500, 150, &serial)...)
	eventually(t, "all sinks agree with the model", func() error {
		require.False(t, a.ended() || b.ended(), tail(a.log.String(), 60))
		return c.checks(hook)
	})
	a.ready(200)
	b.ready(200)
	require.NotZero(t, a.metric("weir_deliveries_total"), "the process that came back takes part")
	a.terminate()
	b.terminate()
	a.ok()
	b.ok()
	require.NoError(t, c.checks(hook))
}

func record(topic, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
}
