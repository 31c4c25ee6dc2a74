package page_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// scene is a page over a store that has seen a day of a deployment with so many
// services and dead letters.
type scene struct {
	*world
	services []string
}

func newScene(t *testing.T, services, letters int) *scene {
	s := &scene{}
	dir := t.TempDir()
	main := "data_dir: .\nsources:\n"
	sources := []string{"registry", "orders", "telemetry"}
	for _, name := range sources {
		main += fmt.Sprintf("  %s:\n    file: {path: %s.jsonl}\n    entity: id\n    event_id: event\n    strip: [\"updated_at\", \"**.trace_id\"]\n", name, name)
	}
	main += "customers: [\"customers/*.yaml\"]\n"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "customers"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(main), 0o644))
	names := []string{"acme", "zest", "harvest-and-sons", "north-wind", "lumen", "orchard", "quay", "tide"}
	perCustomer := max(1, services/40)
	for i := 0; len(s.services) < services; i++ {
		customer := names[i%len(names)]
		if i >= len(names) {
			customer += fmt.Sprint("-", i/len(names))
		}
		text := "customer: " + customer + "\nprojections:\n"
		for p := 0; p < perCustomer && len(s.services) < services; p++ {
			projection := []string{"ripeness", "stock", "price", "origin", "labels"}[p%5]
			text += fmt.Sprintf("  %s:\n    when: doc.origin in [\"EC\", \"CO\"]\n    fields:\n      banana_id: id\n      ripeness.level: ripeness_level\n      tags: \"tags.#.name\"\n      kind: {const: banana}\n      weight: {path: weight, default: 0}\n    deliver:\n      warehouse: {file: {path: ../out/%s_%s.jsonl}}\n", projection, customer, projection)
			s.services = append(s.services, customer+"/"+projection+"@warehouse")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "customers", customer+".yaml"), []byte(text), 0o644))
	}
	cfg, err := assemble.Load(filepath.Join(dir, "weir.yaml"), nil)
	require.NoError(t, err)
	s.world = newWorld(t, func(o *page.Options) {
		o.Config = func() *config.Config { return cfg }
	})
	w := s.world
	w.now = time.Now().UTC().Truncate(time.Minute)
	w.conditions = map[string]deliver.Condition{}
	for _, name := range s.services {
		w.conditions[name] = deliver.Condition{State: deliver.StateRunning}
	}
	w.conditions[s.services[0]] = deliver.Condition{
		State: deliver.StatePaused, Pause: &deliver.Pause{Cause: deliver.PausedByRefusal}, Since: w.now.Add(-37 * time.Minute), Error: "the target answers 401 Unauthorized: token expired", Cause: "401 Unauthorized",
		Detail: `POST https://hooks.example/in: 401 Unauthorized: {"error":"token expired","hint":"ask for a new one at https://hooks.example/tokens","request":"7c9e6679-7425-40de-944b-e07fc1f90ae7"}`,
	}
	w.conditions[s.services[1]] = deliver.Condition{
		State: deliver.StatePaused, Since: w.now.Add(-2 * time.Hour),
		Pause: deliver.PauseOf(store.Pause{Since: w.now.Add(-2 * time.Hour), Actor: "ann@127.0.0.1", Reason: "their warehouse moves until noon"}),
	}
	s.day(sources)
	s.state(letters)
	return s
}

// day lets 20 hours pass, in steps of a minute, or larger ones where each takes long: with an
// hour without a process, an outage of the store and a reload.
func (s *scene) day(sources []string) {
	reg := s.registry
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "x"}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "x"}, labels)
		reg.MustRegister(g)
		return g
	}
	ingested, events := counter("weir_ingest_events_total", "source", "outcome"), counter("weir_events_total", "source", "outcome")
	decisions, delivered := counter("weir_decisions_total", "service", "decision"), counter("weir_deliveries_total", "service", "outcome")
	failures := counter("weir_delivery_failures_total", "service", "class")
	pending, lag, inboxLag := gauge("weir_delivery_queued", "service"), gauge("weir_source_lag", "source"), gauge("weir_inbox_lag", "partition")
	letters := gauge("weir_dead_letters", "stage")
	age := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_delivery_age_seconds", Help: "x"}, []string{"service"})
	reg.MustRegister(age)
	dice := rand.New(rand.NewPCG(1, 2))
	until := s.now
	pass := func(seconds, load float64) {
		for i, source := range sources {
			n := seconds * load * float64(60/(i+1)) * (0.8 + 0.4*dice.Float64())
			ingested.WithLabelValues(source, "taken").Add(n)
			ingested.WithLabelValues(source, "repeated").Add(n / 20)
			events.WithLabelValues(source, "noise").Add(n / 3)
			events.WithLabelValues(source, "merged").Add(2 * n / 3)
			lag.WithLabelValues(source).Set(float64(int(n/40) * i))
		}
		for i, service := range s.services {
			n := seconds * load * float64(40/(i%12+1)) * (0.8 + 0.4*dice.Float64())
			decisions.WithLabelValues(service, "pruned").Add(4 * n)
			decisions.WithLabelValues(service, "held_back").Add(n)
			decisions.WithLabelValues(service, "sent").Add(n / 4)
			if i < 2 && until.Sub(s.now) < time.Hour {
				pending.WithLabelValues(service).Add(n / 4)
				if i == 0 {
					failures.WithLabelValues(service, "pause").Add(seconds / 30)
				}
				continue
			}
			pending.WithLabelValues(service).Set(0)
			delivered.WithLabelValues(service, "delivered").Add(n / 4)
			age.WithLabelValues(service).Observe(0.05 + 0.1*dice.Float64() + load/20)
		}
		inboxLag.WithLabelValues("0").Set(float64(dice.IntN(12)))
		s.now = s.now.Add(time.Duration(seconds * float64(time.Second)))
		require.NoError(s.t, s.opt.History.Sample())
		s.opt.History.Observe(false)
	}
	letters.WithLabelValues("deliver").Set(12)
	s.process = operate.Process{Name: "weir-0:1", Version: "0.1.0", Revision: 1}
	s.now = until.Add(-20 * time.Hour)
	step := 60.0
	if len(s.services) > 50 {
		step = 1800
	}
	for s.now.Before(until.Add(-15 * time.Minute)) {
		switch age := until.Sub(s.now); {
		case age < 40*time.Minute:
			s.process.Services = []operate.ServiceHealth{{Service: s.services[0], Level: operate.LevelDown, Error: "401 Unauthorized"}}
		case age < 5*time.Hour:
			s.process.Revision, s.process.Health = 2, operate.Health{}
		case age < 6*time.Hour:
			s.process.Health = operate.Health{Level: operate.LevelDown, Reason: "store", Error: "the store does not answer"}
		case age > 10*time.Hour && age < 11*time.Hour: // no process runs
			s.now = s.now.Add(time.Duration(step) * time.Second)
			continue
		}
		hour := s.now.Hour()
		load := 0.3 + 0.9*float64(max(0, 12-max(hour-13, 13-hour)))/12
		pass(step, load)
	}
	for s.now.Before(until) {
		pass(15, 1)
	}
	pass(10, 1)
	pass(10, 1)
}

// state fills the store.
func (s *scene) state(letters int) {
	t := s.t
	ctx := t.Context()
	_, err := s.store.Activate(ctx, s.opt.Config().Identity(), false, store.Inbox{}, nil)
	require.NoError(t, err)
	codes := [][2]string{{"refused", "422 Unprocessable Entity: ripeness.level must be at most 9"}, {"given_up", "gave up after 10 attempts: i/o timeout"}, {"bad_json", "the value is no JSON: unexpected end at byte 41"}}
	var batch []store.DeadLetter
	for i := range letters {
		c := codes[i%3]
		l := store.DeadLetter{Stage: store.StageDeliver, Code: c[0], Reason: c[1], Service: s.services[i%len(s.services)], Entity: fmt.Sprintf("B-%06d", i), Payload: []byte(`{"id":"B"}`), State: store.LetterOpen, DedupKey: fmt.Sprint(i)}
		if c[0] == "bad_json" {
			l.Stage, l.Source, l.Service = store.StageIngest, "orders", ""
		}
		if batch = append(batch, l); len(batch) == 5000 || i == letters-1 {
			require.NoError(t, s.store.AddLetters(ctx, batch))
			batch = batch[:0]
		}
	}
	require.NoError(t, s.store.AddAudits(ctx, []store.Audit{{Actor: "ann@127.0.0.1", Action: "pause", Service: s.services[1], Reason: "their warehouse moves until noon", Detail: []byte("{}")}}))
	process := func(name string, p operate.Process) {
		p.Name = name
		body, err := json.Marshal(p)
		require.NoError(t, err)
		require.NoError(t, s.store.UpdateReport(ctx, operate.ProcessKind, name, func([]byte) ([]byte, error) { return body, nil }))
	}
	process("weir-0:1", operate.Process{Roles: "ingest", Version: "0.1.0", Revision: 1, Started: s.now.Add(-26 * time.Hour), Seen: s.now, Health: operate.Health{Level: "degraded"}, Taken: 110, Decided: 108})
	process("weir-1:1", operate.Process{Roles: "work", Version: "0.1.0", Revision: 1, Started: s.now.Add(-26 * time.Hour), Seen: s.now, Health: operate.Health{Level: "ok"}, Delivered: 61})
	process("weir-2:1", operate.Process{Roles: "work", Version: "0.1.0", Revision: 1, Started: s.now.Add(-30 * time.Hour), Seen: s.now.Add(-20 * time.Minute), Health: operate.Health{Level: "ok"}, Delivered: 19})
	process("ip-10-20-30-40.eu-central-1.compute.internal:1234567", operate.Process{Roles: "ingest,work", Version: "v1.22.333-0.20261126195445-f27ae4c1abcd+dirty", Revision: 12345, Started: s.now.Add(-26 * time.Hour), Seen: s.now.Add(-3 * time.Minute), Stopped: true, Taken: 19})
	s.entities(60)
}

// entities decides some, without a pipeline.
func (s *scene) entities(n int) {
	t := s.t
	part, token := store.Partition{Generation: 1}, store.Token{1}
	_, err := s.store.TakeOver(t.Context(), []store.Partition{part}, token)
	require.NoError(t, err)
	active, err := s.store.Active(t.Context())
	require.NoError(t, err)
	err = s.store.Decide(t.Context(), store.Decision{Revision: active.Number, Moves: []store.WatermarkStep{{Partition: part, To: int64(n), Token: token}}}, func(store.Loaded) (store.Outcome, error) {
		var out store.Outcome
		for i := range n {
			out.Entities = append(out.Entities, store.Entity{
				ID: fmt.Sprintf("B-%06d", i), Docs: []byte(`{"orders":{"id":"B"},"registry":{"id":"B","ripeness_level":3,"origin":"EC"}}`), Version: change.NewVersion(1, int64(i)),
			})
		}
		return out, nil
	})
	require.NoError(t, err)
}
