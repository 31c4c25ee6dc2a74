package events_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/transport"
	pushsource "github.com/seed-86dfc502/weir/sources/push"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// world is a server with the routes of events on a real push source and stage;
// the ledger and the inbox are in memory. Time-outs are tested in a bubble of synctest,
// independent of the machine's speed.
type world struct {
	t      *testing.T
	door   api.Options
	server *api.Server
	ledger *memory
	reg    *prometheus.Registry

	mu      sync.Mutex
	records []change.Event
	appends func(context.Context) error // nil works
}

// keyring knows tenants by the token itself.
type keyring struct{}

func (keyring) Authenticate(r *http.Request) (auth.Principal, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "" {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	who := auth.Principal{ID: token, Tenant: token, Permissions: []auth.Permission{auth.Ingest}, Sources: []string{auth.AllSources}}
	if token == "stranger" {
		who.Sources = []string{"elsewhere"}
	}
	return who, nil
}

// noGate fails the test when it is asked: the ledger is the gate of posted events.
type noGate struct{ t *testing.T }

func (g noGate) Seen(context.Context, []gate.Entry) ([]bool, error) {
	g.t.Error("the gate was asked")
	return nil, errors.New("not to be asked")
}

func (g noGate) Mark(context.Context, []gate.Entry) error {
	g.t.Error("the gate was marked")
	return nil
}
func (g noGate) Ping(context.Context) error { return nil }
func (g noGate) Close() error               { return nil }

func (w *world) Append(ctx context.Context, records []transport.Record) error {
	w.mu.Lock()
	appends := w.appends
	w.mu.Unlock()
	if appends != nil {
		if err := appends(ctx); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		got, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		if err != nil {
			return err
		}
		w.records = append(w.records, *got.Event)
	}
	return nil
}

func (w *world) AddLetters(context.Context, []store.DeadLetter) error {
	w.t.Error("a posted event became a dead letter")
	return nil
}

func (w *world) inbox() []change.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append([]change.Event(nil), w.records...)
	for i := range all {
		all[i].Mark = "" // of the content as it came, see change.EventMark
	}
	return all
}

func (w *world) setAppends(f func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appends = f
}

// options of a world.
type options struct {
	shape   func(*ingest.Extractor)
	maxRows int
	maxBody int64
	memory  int64
	timeout time.Duration
	patches bool
}

// newWorld has the sources orders, whose events have ids, and plain, whose have none.
func newWorld(t *testing.T, o options) *world {
	w := &world{t: t, ledger: newMemory(), reg: prometheus.NewRegistry()}
	rules, err := stripper.Compile([]string{"trace"})
	require.NoError(t, err)
	if o.timeout == 0 {
		o.timeout = patience
	}
	if o.maxRows == 0 {
		o.maxRows = 100
	}
	if o.maxBody == 0 {
		o.maxBody = 64 << 10
	}
	metrics := ingest.NewMetrics(prometheus.NewRegistry())
	found := map[string]*events.Source{}
	for _, name := range []string{"orders", "plain"} {
		shape := ingest.Extractor{
			Source: name, Entity: ingest.Locator{Path: "id"}, Operation: ingest.Locator{Header: "x-operation"},
			IsDelete: func(op string) bool { return op == "delete" }, Strip: rules, MaxEvent: 4 << 10, MaxEntity: 64,
		}
		if name == "orders" {
			shape.EventID = ingest.Locator{Path: "event"}
		}
		if o.shape != nil {
			o.shape(&shape)
		}
		push := pushsource.New(pushsource.Options{Name: name})
		stage := ingest.New(ingest.Options{
			Extractor: shape, Gate: noGate{t}, Inbox: w, Topic: "weir.inbox", Letters: w,
			InboxID: func() string { return "inbox" },
			Logger:  slog.New(slog.DiscardHandler), Metrics: metrics,
		})
		w.run(push, stage)
		found[name] = &events.Source{Name: name, Extractor: shape, Push: push, MaxBody: o.maxBody, Patches: o.patches}
	}
	w.door = api.Options{
		Access: keyring{}, Timeout: o.timeout, Rate: 1_000_000, MaxBody: o.maxBody, MaxRows: o.maxRows, Memory: o.memory,
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
	w.server = api.New(w.door)
	events.New(events.Options{
		Source: func(path string) (*events.Source, bool) { s, ok := found[path]; return s, ok },
		Ledger: w.ledger, Keep: time.Hour, MaxRows: o.maxRows,
		Metrics: events.NewMetrics(w.reg), Logger: slog.New(slog.DiscardHandler),
	}).Register(w.server)
	return w
}

// run acts as the stage's router.
func (w *world) run(push *pushsource.Source, stage *ingest.Stage) {
	ctx, cancel := context.WithCancel(context.Background())
	messages, err := push.Subscribe(ctx, "")
	require.NoError(w.t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for m := range messages {
			all.Go(func() {
				if stage.Handle(m) == nil {
					m.Ack()
				} else {
					m.Nack()
				}
			})
		}
	})
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, push.Close())
		all.Wait()
	})
}

// request is one request; the zero values are a post of one event to orders.
type request struct {
	tenant, path, kind, key, body string
	header                        http.Header
	ctx                           context.Context
}

type answer struct {
	status int
	body   string
	header http.Header
}

func (w *world) send(q request) answer {
	w.t.Helper()
	if q.path == "" {
		q.path = "orders/events"
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/sources/"+q.path, strings.NewReader(q.body))
	if q.ctx != nil {
		r = r.WithContext(q.ctx)
	}
	for name, values := range q.header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	switch q.kind {
	case "":
		r.Header.Set("Content-Type", "application/json")
	case "none":
	default:
		r.Header.Set("Content-Type", q.kind)
	}
	if q.tenant == "" {
		q.tenant = "acme"
	}
	r.Header.Set("Authorization", "Bearer "+q.tenant)
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	got := httptest.NewRecorder()
	w.server.ServeHTTP(got, r)
	result := got.Result()
	body, err := io.ReadAll(result.Body)
	require.NoError(w.t, err)
	return answer{result.StatusCode, string(body), result.Header}
}

// problem decodes a problem; its members are in the answer to a refused request.
func (w *world) problem(a answer) (p struct {
	Type, Title, Detail, Code string
	Status                    int
	Fingerprint               string
	Stored                    string `json:"stored_fingerprint"`
}) {
	w.t.Helper()
	require.Equal(w.t, "application/problem+json", a.header.Get("Content-Type"), a.body)
	require.NoError(w.t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(w.t, a.status, p.Status)
	return p
}

func (w *world) result(a answer) (r events.Result) {
	w.t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(a.body)))
	d.DisallowUnknownFields()
	require.NoError(w.t, d.Decode(&r), a.body)
	return r
}

func (w *world) rows(a answer) []events.Result {
	w.t.Helper()
	var r events.Results
	require.NoError(w.t, json.Unmarshal([]byte(a.body), &r), a.body)
	for i := range r.Rows {
		require.Equal(w.t, i, *r.Rows[i].Index)
	}
	return r.Rows
}

func (w *world) metric(name string) (sum float64) {
	families, err := w.reg.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
