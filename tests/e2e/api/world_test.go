package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestMain(m *testing.M) { harness.Main(m, "crash") }

// The ways to run Weir.
const (
	onBrokers = "brokers"  // one process, its state in a file, its logs on brokers
	embedded  = "embedded" // everything in one process
	onServers = "servers"  // PostgreSQL, Kafka and Valkey; any number of processes
)

// world is one deployment, with the sources orders, whose events have ids, and
// plain, whose events have none; the customer's file gets every change.
type world struct {
	t   testing.TB
	on  string
	p   harness.Project
	all *harness.Process   // of the roles that are not doors
	ins []*harness.Process // doors
}

const mainFile = `%s
sources:
  orders: {http: {}, entity: id, event_id: event, strip: [event]}
  plain: {http: {}, entity: id}
customers: ["customers/*.yaml"]
api: {listen: "127.0.0.1:0", idempotency: {retention: %s}}
admin: {listen: "127.0.0.1:0"}
`

// newWorld makes a deployment and starts nothing.
func newWorld(t testing.TB, on, retention string) *world {
	backing := "kafka: {session_timeout: 3s, inbox: {partitions: 2}}"
	switch on {
	case onBrokers:
		brokers, prefix := servers.Kafka(t)
		backing = fmt.Sprintf("kafka: {brokers: [%q], prefix: %q, session_timeout: 3s, inbox: {partitions: 2}}", brokers[0], prefix+"weir")
	case onServers:
		brokers, prefix := servers.Kafka(t)
		valkey, keys := servers.Valkey(t)
		backing = fmt.Sprintf("store: {postgres: {url: %q}}\ngate: {valkey: {address: %q, prefix: %q}}\n"+
			"kafka: {brokers: [%q], prefix: %q, session_timeout: 3s, inbox: {partitions: 2}}",
			servers.Postgres(t), valkey, keys, brokers[0], prefix+"weir")
	}
	return &world{t: t, on: on, p: harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(mainFile, backing, retention),
		"customers/acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n" +
			"    deliver:\n      out: {file: {path: ../out/acme.jsonl}}\n",
	})}
}

// start starts the deployment with two doors where there can be two.
func (w *world) start() *world {
	w.t.Helper()
	if w.on != onServers {
		w.all = w.p.Start("run")
		w.ins = []*harness.Process{w.all}
	} else {
		w.all = w.p.Start("run --role work")
		w.all.Ready(200)
		w.ins = []*harness.Process{w.door(), w.door()}
	}
	for _, in := range w.ins {
		in.Address("ingest")
		in.Ready(200)
	}
	return w
}

// door starts one more process that takes requests.
func (w *world) door(env ...string) *harness.Process {
	w.t.Helper()
	command := "run --role ingest"
	if w.on != onServers {
		command = "run"
	}
	return w.p.StartEnv(env, command)
}

// states ends the deployment when everything is delivered, and returns the states
// that the customer got of an entity, in their order; of all entities for "".
func (w *world) states(entity string) []string {
	w.t.Helper()
	w.stop()
	w.p.Drain()
	var all []string
	for _, r := range w.p.Records("out/acme.jsonl") {
		if entity == "" || r.Entity == entity {
			all = append(all, harness.StateOf(r))
		}
	}
	return all
}

// stop ends all processes in order.
func (w *world) stop() {
	w.t.Helper()
	for _, pr := range append([]*harness.Process{w.all}, w.ins...) {
		if pr != nil && !pr.Ended() {
			pr.Address("admin") // before that it may not know the signal
			pr.Terminate()
			require.Zero(w.t, pr.Wait(), harness.Tail(pr.Log.String(), 40))
		}
	}
}

// wants waits until the customer has n changes; that there are no more is what
// states tells.
func (w *world) wants(n int) {
	w.t.Helper()
	harness.Eventually(w.t, "the customer's changes", func() error {
		return harness.Want(len(w.p.Whole("out/acme.jsonl")), n)
	})
}

// request is one request; key is the Idempotency-Key, none if empty.
type request struct{ path, key, kind, body string }

// order is an event with an id, about an entity.
func order(id, entity, state string) request {
	return request{path: "orders/events", body: fmt.Sprintf(`{"event":%q,"id":%q,"state":%q}`, id, entity, state)}
}

// keyed is an event without an id under an Idempotency-Key.
func keyed(key, entity, state string) request {
	return request{path: "plain/events", key: key, body: fmt.Sprintf(`{"id":%q,"state":%q}`, entity, state)}
}

type answer struct {
	status   int
	body     string
	replayed bool
	wait     string // Retry-After
}

// client has connections of its own, so that none that a killed process left
// is used again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.Patience}

// try sends a request once. An error says that there is no answer.
func try(ctx context.Context, address string, q request) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/sources/"+q.path, strings.NewReader(q.body))
	if err != nil {
		return answer{}, err
	}
	if q.kind == "" {
		q.kind = "application/json"
	}
	r.Header.Set("Content-Type", q.kind)
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(body), resp.Header.Get("Idempotency-Replayed") == "true", resp.Header.Get("Retry-After")}, err
}

// post sends a request to a door, which must answer.
func (w *world) post(door *harness.Process, q request) answer {
	w.t.Helper()
	a, err := try(w.t.Context(), door.Address("ingest"), q)
	require.NoError(w.t, err)
	return a
}

// crowd has 64 clients send one request to doors, which may die and change meanwhile, each
// until it is taken in, and returns the one answer that all of them got.
func (w *world) crowd(q request, doors func() []string) (string, error) {
	bodies := make([]string, 64)
	var all errgroup.Group
	for i := range bodies {
		all.Go(func() error {
			for {
				open := doors()
				a, err := try(w.t.Context(), open[i%len(open)], q)
				switch {
				case err == nil && a.status == http.StatusAccepted:
					bodies[i] = a.body
					return nil
				case err == nil && a.status != http.StatusServiceUnavailable:
					return fmt.Errorf("%d %s", a.status, a.body)
				case !wait.Sleep(w.t.Context(), harness.Poll):
					return w.t.Context().Err()
				}
			}
		})
	}
	err := all.Wait()
	if different := slices.Compact(slices.Sorted(slices.Values(bodies))); err == nil && len(different) > 1 {
		err = fmt.Errorf("answers differ: %q", different)
	}
	return bodies[0], err
}

// id is the claim in the answer to an accepted event.
func (w *world) id(a answer) string {
	w.t.Helper()
	require.Equal(w.t, 202, a.status, a.body)
	var got struct{ ID, Status string }
	require.NoError(w.t, json.Unmarshal([]byte(a.body), &got))
	require.Equal(w.t, "accepted", got.Status)
	require.NotEmpty(w.t, got.ID)
	return got.ID
}

// both runs a test embedded and with servers.
func both(t *testing.T, f func(t *testing.T, on string)) {
	if testing.Short() {
		t.Skip("runs the whole pipeline, with servers")
	}
	t.Parallel()
	for _, on := range []string{embedded, onServers} {
		t.Run(on, func(t *testing.T) { f(t, on) })
	}
}

// counted are the states and how often each is there.
func counted(states []string) map[string]int {
	n := map[string]int{}
	for _, s := range states {
		n[s]++
	}
	return n
}

// onceEach checks that every state is there once, and no other; problems are
// listed, at most some of them.
func onceEach(t testing.TB, got []string, want []string) {
	t.Helper()
	n := counted(got)
	var problems []string
	for _, s := range want {
		if n[s] != 1 {
			problems = append(problems, fmt.Sprintf("%s: %d times", s, n[s]))
		}
		delete(n, s)
	}
	for s, times := range n {
		problems = append(problems, fmt.Sprintf("%s: %d times, never accepted", s, times))
	}
	slices.Sort(problems)
	require.Empty(t, problems[:min(len(problems), 20)], "%d of %d", len(problems), len(want))
}
