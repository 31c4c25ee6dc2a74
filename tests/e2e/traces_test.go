package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/otlptest"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	theirTrace   = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan    = "00f067aa0ba902b7"
	theirContext = "00-" + theirTrace + "-" + theirSpan + "-01"
)

// hook is a customer's endpoint that also keeps what traces are passed on, by
// entity, and the bodies.
type hook struct {
	brokers []string // of the topic feed
	*harness.Receiver
	server *httptest.Server

	mu      sync.Mutex
	headers map[string]http.Header
	bodies  map[string][]byte
}

func newHook(t *testing.T) *hook {
	h := &hook{Receiver: harness.NewReceiver(t), headers: map[string]http.Header{}, bodies: map[string][]byte{}}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	var record struct{ Entity string }
	_ = json.Unmarshal(body, &record) // the receiver checks it
	h.mu.Lock()
	h.headers[record.Entity], h.bodies[record.Entity] = req.Header.Clone(), body
	h.mu.Unlock()
	h.Receiver.ServeHTTP(w, req) // checks the signature
}

func tracedProject(t *testing.T, h *hook, tracing string) harness.Project {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "feed"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	h.brokers = broker.ListenAddrs()
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": `
sources: {registry: {http: {}, entity: id, event_id: event, strip: [event]}}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
api: {listen: "127.0.0.1:0"}
` + tracing,
		"customers/acme.yaml": fmt.Sprintf(`
customer: acme
projections:
  all:
    fields: {id: id, state: state}
    deliver:
      hook: {webhook: {url: %q, secret: %q, timeout: 5m}}
      feed: {kafka: {brokers: [%q], topic: feed}}
      archive: {file: {path: ../out/archive.jsonl}}
`, h.server.URL, harness.WebhookSecret, h.brokers[0]),
	})
	return p
}

// topic reads a log of a project whose process has ended, or the topic of its feed.
func (h *hook) topic(p harness.Project, name string) []*kgo.Record {
	if name == "feed" {
		return harness.ReadTopic(p.T, h.brokers, name)
	}
	return p.Log(name)
}

func post(t *testing.T, run *harness.Process, event, traceparent string) {
	t.Helper()
	run.Ready(http.StatusOK)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+run.Address("ingest")+"/v1/sources/registry/events", strings.NewReader(event))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		req.Header.Set("traceparent", traceparent)
		req.Header.Set("tracestate", "vendor=1")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode, "%s", body)
}

// settle waits until every sink has so many changes, and ends the process.
func settle(t *testing.T, run *harness.Process, changes int) {
	t.Helper()
	harness.Eventually(t, "deliveries", func() error {
		if n := run.Metric("weir_deliveries_total", `outcome="delivered"`); n != float64(3*changes) {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	run.Terminate()
	run.Ok()
}

// traceHeaders are the headers of a record that belong to traces; the others
// are checked to be those that it must have.
func traceHeaders(t *testing.T, r *kgo.Record, others ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var rest []string
	for _, h := range r.Headers {
		if h.Key == change.TraceParentHeader || h.Key == change.TraceStateHeader {
			found[h.Key] = string(h.Value)
		} else {
			rest = append(rest, h.Key)
		}
	}
	slices.Sort(rest)
	slices.Sort(others)
	require.Equal(t, others, rest)
	return found
}

var feedHeaders = []string{"weir-key", "weir-op", "weir-partition", "weir-pipeline", "weir-service", "weir-version"}

// One event, from the request that brought it to the requests that it causes,
// is one trace; events whose producer did not sample them are none of it.
func TestTraceOfOneEvent(t *testing.T) {
	spans, h := otlptest.New(t), newHook(t)
	p := tracedProject(t, h, "tracing: {sample: 0}\n")
	run := p.StartEnv(append(spans.Env(), "OTEL_SERVICE_NAME=weir-test"), "run")
	post(t, run, `{"event":"e1","id":"B-007","state":"green"}`, theirContext)
	post(t, run, `{"event":"e2","id":"B-008","state":"green"}`, theirContext[:len(theirContext)-1]+"0")
	post(t, run, `{"event":"e3","id":"B-009","state":"green"}`, "")
	// The last spans have a short time at a stop: those that there are to be, are
	// awaited before; more must not come.
	spans.Await(func(otlptest.Span) bool { return true }, 1+1+3+4)
	settle(t, run, 3)
	all := spans.Spans()
	below := func(id, name string) (found []otlptest.Span) {
		for _, s := range all {
			if s.Parent == id && s.Name == name {
				require.Equal(t, theirTrace, s.Trace)
				require.Equal(t, "vendor=1", s.State)
				require.Equal(t, "weir-test", s.Service)
				require.False(t, s.Failed, s.Failure)
				found = append(found, s)
			}
		}
		return found
	}
	ingests := below(theirSpan, "ingest")
	require.Len(t, ingests, 1)
	const hash = "0fe2cd5573ee1982"
	require.Equal(t, map[string]string{"weir.source": "registry", "weir.outcome": "taken", "weir.entity.hash": hash}, ingests[0].Attributes)
	decides := below(ingests[0].ID, "decide")
	require.Len(t, decides, 1)
	version := decides[0].Attributes["weir.version"]
	require.NotEmpty(t, version)
	require.Equal(t, map[string]string{
		"weir.source": "registry", "weir.outcome": "merged", "weir.changes": "3", "weir.version": version, "weir.entity.hash": hash,
	}, decides[0].Attributes)
	delivers := map[string]otlptest.Span{}
	for _, s := range below(decides[0].ID, "deliver") {
		service := s.Attributes["weir.service"]
		delivers[service] = s
		require.Equal(t, map[string]string{
			"weir.service": service, "weir.outcome": "delivered", "weir.version": version, "weir.entity.hash": hash,
		}, s.Attributes)
	}
	require.Len(t, delivers, 3)

	// Batches are linked with it, and everything else is about other events.
	batches := 0
	for _, s := range all {
		switch s.Name {
		case "decide batch":
			require.Equal(t, []string{decides[0].ID}, s.Links)
			require.Equal(t, []string{s.ID}, decides[0].Links)
			batches++
		case "deliver batch":
			d := delivers[s.Attributes["weir.service"]]
			require.Equal(t, []string{d.ID}, s.Links)
			require.Equal(t, []string{s.ID}, d.Links)
			batches++
		}
	}
	require.Equal(t, 4, batches)
	require.Len(t, all, 1+1+3+batches, "the other two events are not traced")

	passedOn(t, h, p, ingests[0], decides[0], delivers)
}

// passedOn checks the context on its way: beside the data, never in it.
func passedOn(t *testing.T, h *hook, p harness.Project, ingest, decide otlptest.Span, delivers map[string]otlptest.Span) {
	t.Helper()
	contextOf := func(s otlptest.Span) string { return "00-" + s.Trace + "-" + s.ID + "-01" }
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(t, contextOf(delivers["acme/all@hook"]), h.headers["B-007"].Get("traceparent"))
	require.Equal(t, "vendor=1", h.headers["B-007"].Get("tracestate"))
	for _, entity := range []string{"B-008", "B-009"} {
		require.NotEmpty(t, h.headers[entity])
		require.Empty(t, h.headers[entity].Values("traceparent"), entity)
		require.Empty(t, h.headers[entity].Values("tracestate"), entity)
	}
	require.NotContains(t, string(h.bodies["B-007"]), theirTrace)
	require.NotContains(t, string(h.bodies["B-007"]), "vendor")
	for topic, want := range map[string]struct {
		context string
		others  []string
	}{
		"weir.inbox": {contextOf(ingest), []string{change.InboxHeader}},
		"feed":       {contextOf(delivers["acme/all@feed"]), feedHeaders},
	} {
		records := h.topic(p, topic)
		require.Len(t, records, 3, topic)
		for _, r := range records {
			headers := traceHeaders(t, r, want.others...)
			if string(r.Key) == "B-007" {
				require.Equal(t, map[string]string{"traceparent": want.context, "tracestate": "vendor=1"}, headers, topic)
			} else {
				require.Empty(t, headers, topic)
			}
		}
	}
	changes := harness.Changes(t, harness.Frames(t, p.Path("data/state.db")))
	require.Len(t, changes, 3*3, "of three services")
	for _, c := range changes {
		if c.Entity == "B-007" {
			require.Equal(t, &change.Trace{Parent: contextOf(decide), State: "vendor=1"}, c.Trace)
		} else {
			require.Nil(t, c.Trace, c.Entity)
		}
	}
}

// A change sent again has a trace of its own with the reason, linked with the first
// one if that is known; the replay of an untraced change is traced by
// chance, here never.
func TestTracesOfWhatIsSentAgain(t *testing.T) {
	t.Parallel()
	spans, h := otlptest.New(t), newHook(t)
	p := tracedProject(t, h, "tracing: {sample: 0}\n")
	h.Answers(func(oracle.Record) int { return http.StatusBadRequest })
	run := p.StartEnv(spans.Env(), "run")
	post(t, run, `{"event":"e1","id":"B-007","state":"green"}`, theirContext)
	post(t, run, `{"event":"e2","id":"B-008","state":"green"}`, "")
	harness.Eventually(t, "dead letters", func() error { return harness.Want(len(p.Letters()), 2) })
	h.Answers(nil)
	p.Start("dlq replay --all --yes --wait --reason again").Ok()
	harness.Eventually(t, "both of them", func() error { return harness.Want(len(h.Received()), 2) })
	spans.Await(func(s otlptest.Span) bool { return s.Attributes["weir.cause"] == "repair" }, 1)
	again := spans.Await(func(s otlptest.Span) bool { return s.Attributes["weir.cause"] == "dead letter" }, 1)
	spans.Below(again[0].ID, "deliver", 1)
	run.Terminate()
	run.Ok()

	all := spans.Spans()
	byID := map[string]otlptest.Span{}
	for _, s := range all {
		byID[s.ID] = s
	}
	causes := map[string]int{}
	for _, s := range all {
		cause := s.Attributes["weir.cause"]
		if cause == "" {
			continue
		}
		require.Equal(t, "decide", s.Name)
		require.Empty(t, s.Parent)
		require.NotEqual(t, theirTrace, s.Trace)
		require.NotEmpty(t, s.Links)
		original := byID[s.Links[0]]
		require.Equal(t, theirTrace, original.Trace, "it repeats what was traced")
		causes[cause+" of "+original.Name]++
		require.Equal(t, cause == "dead letter", s.Attributes["weir.operation"] != "", "an operator's has the id of the operation")
		if cause == "dead letter" {
			require.Equal(t, "1", s.Attributes["weir.changes"])
			delivered := spans.Below(s.ID, "deliver", 1)
			require.Equal(t, "delivered", delivered[0].Attributes["weir.outcome"])
			require.Equal(t, s.Trace, delivered[0].Trace)
		}
	}
	require.Equal(t, map[string]int{"repair of deliver": 1, "dead letter of deliver": 1}, causes)

	// By chance always: the whole replay is traced, and each of its spans names it.
	more := otlptest.New(t)
	main := p.Read("weir.yaml")
	p.Write("weir.yaml", harness.ReplaceOnce(t, main, "sample: 0", "sample: 1"))
	run = p.StartEnv(more.Env(), "run")
	run.Ready(http.StatusOK)
	p.Start("replay --all --force --wait").Ok()
	more.Await(func(s otlptest.Span) bool { return s.Attributes["weir.cause"] == "replay" }, 2)
	run.Terminate()
	run.Ok()
	replayed := 0
	for _, s := range more.Spans() {
		if s.Attributes["weir.cause"] == "replay" {
			require.Regexp(t, `^job-\d+$`, s.Attributes["weir.operation"])
			require.Equal(t, "3", s.Attributes["weir.changes"])
			replayed++
		}
	}
	require.Equal(t, 2, replayed)
}
