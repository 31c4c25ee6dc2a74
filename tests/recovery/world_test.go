package recovery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// config has one source and four sinks. Processes end in their orderly way here,
// so no session has to expire; it, and the time to stop, outlast every pause of
// a busy machine, which would have work done a second time.
const config = `
store: {postgres: {url: %q}}
gate: {valkey: {address: %q, prefix: %q}}
kafka: {brokers: [%q], prefix: "%sweir", session_timeout: 30s, inbox: {partitions: 4}}
sources:
  events: {kafka: {topic: %q, frame_records: %d}, entity: key, event_id: header:ce_id}
customers: [acme.yaml]
admin: {listen: "127.0.0.1:0"}
shutdown: {timeout: 5m}
`

const customer = `
customer: acme
projections:
  all:
    fields: {id: id, state: state}
    deliver:
      current: {postgres: {url: %[1]q, table: acme_current}}
      history: {postgres: {url: %[1]q, table: acme_history, mode: append}}
      hook: %[2]s
      feed: {kafka: {topic: "%[3]sfeed"}}
`

// The services of the configuration.
const (
	current = "acme/all@current"
	history = "acme/all@history"
	hook    = "acme/all@hook"
	feed    = "acme/all@feed"
)

const entities = 40

// world is one project on servers, with the events sent into it.
type world struct {
	*harness.Cluster
	harness.Project
	Admin    *kadm.Client
	Receiver *harness.Receiver
	serial   int
	plain    bool
	sent     map[string]map[place]*kgo.Record // topic identity to what it held
	yaml     string                           // the main configuration
	// inboxName and generation are those of the inbox topic at present.
	inboxName  string
	generation uint64
	kept       []inboxTopic
}

// inboxTopic is what an inbox topic held before records of it, or it, were removed.
type inboxTopic struct {
	generation uint64
	records    []*kgo.Record
}

type place struct {
	partition int32
	offset    int64
}

// newWorld makes a world whose state is in the given store. window is that of
// the source: 1 is the transport of watermill-kafka.
func newWorld(t *testing.T, store string, window int) *world {
	return newWorldWithSource(t, store, window, nil)
}

func newWorldWithSource(t *testing.T, store string, window int, settings map[string]*string) *world {
	valkey, keys := servers.Valkey(t)
	c := &harness.Cluster{T: t, Store: store, Target: servers.Postgres(t)}
	c.Brokers, c.Prefix = servers.Kafka(t)
	c.Connect(kgo.MetadataMinAge(100 * time.Millisecond))
	r := harness.NewReceiver(t)
	w := &world{Cluster: c, Admin: kadm.NewClient(c.Kafka), Receiver: r, generation: 1, sent: map[string]map[place]*kgo.Record{}}
	w.inboxName = c.Prefix + "weir.inbox"
	w.yaml = fmt.Sprintf(config, store, valkey, keys, c.Brokers[0], c.Prefix, w.source(), window)
	w.Project = harness.NewProject(t, map[string]string{
		"weir.yaml": w.yaml,
		"acme.yaml": fmt.Sprintf(customer, c.Target, harness.PatientHookSink(r), c.Prefix),
	})
	c.Topics(1, c.Prefix+"feed")
	w.create(w.source(), 2, settings)
	return w
}

func (w *world) t() testing.TB  { return w.Cluster.T }
func (w *world) source() string { return w.Prefix + "events" }
func (w *world) inbox() string  { return w.inboxName }

// create makes a topic, which the cluster may not know at once everywhere. A
// process that runs may have made one that was removed before we come to it: the
// inbox because it needs it, a source because Kafka creates a topic on a client's request.
func (w *world) create(topic string, partitions int32, settings map[string]*string) {
	w.t().Helper()
	harness.Eventually(w.t(), "the creation of "+topic, func() error {
		made, err := w.Admin.CreateTopics(w.t().Context(), partitions, 1, settings, topic)
		if err := errors.Join(err, made.Error()); !errors.Is(err, kerr.TopicAlreadyExists) {
			return err
		}
		topics, err := w.Admin.ListTopics(w.t().Context(), topic)
		if err := errors.Join(err, topics.Error()); err != nil {
			return err
		}
		if len(topics[topic].Partitions) < int(partitions) {
			grown, err := w.Admin.UpdatePartitions(w.t().Context(), int(partitions), topic)
			return errors.Join(err, grown.Error())
		}
		return nil
	})
	harness.Eventually(w.t(), "the topic "+topic, func() error {
		topics, err := w.Admin.ListTopics(w.t().Context(), topic)
		return errors.Join(err, topics.Error(), topics[topic].Err)
	})
}

// topicID is the identity of a topic.
func (w *world) topicID(topic string) string {
	topics, err := w.Admin.ListTopics(w.t().Context(), topic)
	require.NoError(w.t(), err)
	require.NoError(w.t(), topics[topic].Err)
	return topics[topic].ID.String()
}

// remove deletes a topic, and returns when it is gone.
func (w *world) remove(topic string) {
	w.t().Helper()
	gone, err := w.Admin.DeleteTopics(w.t().Context(), topic)
	require.NoError(w.t(), errors.Join(err, gone.Error()))
	// The client of the tests must forget the identity.
	w.Kafka.PurgeTopicsFromClient(topic)
	harness.Eventually(w.t(), "the deletion of "+topic, func() error {
		topics, err := w.Admin.ListTopics(w.t().Context(), topic)
		if err == nil && topics[topic].Err == nil {
			err = harness.ErrNotYet
		} else {
			err = nil
		}
		return err
	})
}

// round is one event per entity, each with a state of its own; unless plain,
// every third entity says it twice, under another event id.
func (w *world) round() []*kgo.Record { return w.share(0, 1) }

// share is a round's part of every of-th entity, from one on.
func (w *world) share(from, of int) []*kgo.Record {
	var all []*kgo.Record
	for e := from; e < entities; e += of {
		w.serial++
		twice := !w.plain && e%3 == 0
		for n := range 2 {
			if n == 1 && !twice {
				break
			}
			r := harness.Record(w.source(), fmt.Sprint("E", e), fmt.Sprintf(`{"id":"E%d","state":"s%d"}`, e, w.serial))
			r.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: []byte(fmt.Sprintf("e%d-%d", w.serial, n))}}
			all = append(all, r)
		}
	}
	return all
}

// say sends rounds of events and remembers their offsets.
func (w *world) say(rounds int) {
	w.t().Helper()
	for range rounds {
		w.send(w.Kafka, w.round())
	}
}

func (w *world) send(client *kgo.Client, records []*kgo.Record) {
	w.t().Helper()
	require.NoError(w.t(), client.ProduceSync(w.t().Context(), records...).FirstErr())
	w.remember(records)
}

// removeRecords deletes the records of a topic before the given offsets from
// the end, as retention does, and returns how far it went.
func (w *world) removeRecords(topic string, left int64) kadm.Offsets {
	w.t().Helper()
	ends, err := w.Admin.ListEndOffsets(w.t().Context(), topic)
	require.NoError(w.t(), errors.Join(err, ends.Error()))
	starts, err := w.Admin.ListStartOffsets(w.t().Context(), topic)
	require.NoError(w.t(), errors.Join(err, starts.Error()))
	upTo := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, o.Partition)
		upTo.AddOffset(topic, o.Partition, max(start.Offset, o.Offset-left), -1)
	})
	done, err := w.Admin.DeleteRecords(w.t().Context(), upTo)
	require.NoError(w.t(), errors.Join(err, done.Error()))
	return upTo
}

// dropFrames deletes all frames of the changes log but so many of each partition, as retention does, and
// returns the partitions that had more.
func (w *world) dropFrames(left int) (partitions []int32) {
	w.t().Helper()
	conn, err := pgx.Connect(w.t().Context(), w.Store)
	require.NoError(w.t(), err)
	defer func() { _ = conn.Close(context.WithoutCancel(w.t().Context())) }()
	rows, err := conn.Query(w.t().Context(), `WITH gone AS (DELETE FROM frames f WHERE $1 <= (
		SELECT count(*) FROM frames n WHERE n.partition = f.partition AND n.upto > f.upto) RETURNING partition) SELECT DISTINCT partition FROM gone`, left)
	require.NoError(w.t(), err)
	partitions, err = pgx.CollectRows(rows, pgx.RowTo[int32])
	require.NoError(w.t(), err)
	return partitions
}

// remember notes events that were produced.
func (w *world) remember(records []*kgo.Record) {
	id := w.topicID(w.source())
	if w.sent[id] == nil {
		w.sent[id] = map[place]*kgo.Record{}
	}
	for _, r := range records {
		w.sent[id][place{r.Partition, r.Offset}] = r
	}
}

func description() oracle.Config {
	return oracle.Config{
		Sources: []oracle.Source{{Name: "events", Entity: "key", EventID: "header:ce_id"}},
		Projection: []oracle.Projection{{
			Services: []string{current, history, hook, feed},
			Fields:   []oracle.Field{{To: "id", From: "id"}, {To: "state", From: "state"}},
		}},
	}
}

// expected is the model's output for the inbox, an error as long as an event
// is not in it. Events of identities in lost need not be there.
func (w *world) expected(lost ...*kgo.Record) (oracle.Expected, error) {
	w.t().Helper()
	taken := map[string]bool{}
	for _, r := range lost {
		taken[harness.Header(r, "ce_id")] = true
	}
	var events []oracle.Event
	seen := map[uint64]map[place]bool{}
	for _, in := range append(w.kept[:len(w.kept):len(w.kept)], w.inboxNow()) {
		if seen[in.generation] == nil {
			seen[in.generation] = map[place]bool{}
		}
		var fresh []*kgo.Record
		for _, r := range in.records {
			if at := (place{r.Partition, r.Offset}); !seen[in.generation][at] {
				seen[in.generation][at] = true
				fresh = append(fresh, r)
			}
		}
		events = append(events, harness.ModelEvents(w.t(), in.generation, fresh, func(h change.Origin) (string, map[string]string, []byte) {
			r := w.sent[h.Topic][place{h.Partition, h.Offset}]
			require.NotNil(w.t(), r, "the inbox has an event that nobody sent: %+v", h)
			taken[harness.Header(r, "ce_id")] = true
			return string(r.Key), map[string]string{"ce_id": harness.Header(r, "ce_id")}, r.Value
		})...)
	}
	for _, records := range w.sent {
		for p, r := range records {
			if !taken[harness.Header(r, "ce_id")] {
				return nil, fmt.Errorf("the event at %v is not in the inbox", p)
			}
		}
	}
	return oracle.Run(description(), events)
}

func (w *world) inboxNow() inboxTopic {
	return inboxTopic{w.generation, harness.ReadTopic(w.t(), w.Brokers, w.inbox())}
}

// keep remembers the inbox as it is, for the model: records are about to go.
func (w *world) keep() { w.kept = append(w.kept, w.inboxNow()) }

// check compares all sinks with the model.
func (w *world) check(lost ...*kgo.Record) error {
	w.t().Helper()
	want, err := w.expected(lost...)
	if err != nil {
		return err
	}
	return w.compare(want)
}

func (w *world) compare(want oracle.Expected) error {
	attempts := w.Receiver.Received()
	return errors.Join(
		oracle.CheckAttempts(want, hook, attempts),
		oracle.CheckState(want, hook, oracle.Newest(attempts)),
		oracle.CheckState(want, current, oracle.Newest(w.Rows("acme_current", current, "entity"))),
		oracle.CheckLog(want, history, w.Rows("acme_history", history, "seq")),
		oracle.CheckLog(want, feed, w.Feed()),
	)
}

// agree waits until all sinks are as the model says.
func (w *world) agree(pr *harness.Process) {
	w.t().Helper()
	harness.Eventually(w.t(), "all sinks agree with the model", func() error {
		require.False(w.t(), pr.Ended(), harness.Tail(pr.Log.String(), 60))
		return w.check()
	})
}

// run starts the pipeline and returns when it works.
func (w *world) run() *harness.Process {
	w.t().Helper()
	pr := w.Start("run")
	pr.Ready(200)
	return pr
}

// stop ends a process in its orderly way.
func stop(pr *harness.Process) {
	pr.T.Helper()
	pr.Terminate()
	pr.Ok()
}

// drain runs the pipeline until it is idle and returns the ended process.
func (w *world) drain(args ...string) *harness.Process {
	w.t().Helper()
	pr := w.Start("run --until-idle --json", args...)
	pr.Ok()
	return pr
}

// repeated counts attempts at the webhook whose key it had accepted before.
func (w *world) repeated() (n int) {
	keys := map[string]bool{}
	for _, r := range w.Receiver.Received() {
		if keys[r.Key] {
			n++
		}
		keys[r.Key] = true
	}
	return n
}
