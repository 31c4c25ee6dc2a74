package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/otlptest"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v4"
)

const rulesFile = "../../deploy/prometheus/weir.rules.yml"

// alert is one rule of the file.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// panelQueries are the expressions of the dashboard with its variables filled
// in, by panel.
func panelQueries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/dashboards/weir.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	found := map[string][]string{}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$service", ".*")
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue // a heading
		}
		require.NotEmpty(t, p.Targets, p.Title)
		require.NotContains(t, found, p.Title)
		for _, target := range p.Targets {
			found[p.Title] = append(found[p.Title], fill.Replace(target.Expr))
		}
	}
	return found
}

// busy starts a pipeline in which everything that can be seen happens: changes,
// duplicates, dead letters of all stages, a target that fails now and then and one that
// refuses, what knock does at the front door, a file of tokens that turns bad, and traces.
func busy(t *testing.T) *harness.Process {
	t.Helper()
	late, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "late"))
	require.NoError(t, err)
	t.Cleanup(late.Close)
	flaky, closed := harness.NewReceiver(t), harness.NewReceiver(t)
	answered := 0
	flaky.Answers(func(r oracle.Record) int {
		answered++
		switch {
		case strings.HasPrefix(r.Entity, "bad"):
			return 422
		case answered <= 3:
			return 503
		}
		return 200
	})
	closed.Answers(func(oracle.Record) int { return 401 })
	spans := otlptest.New(t)
	more := "limits: {change: 1KiB}\napi: {listen: \"127.0.0.1:0\", tokens: tokens.yaml}\ntracing: {sample: 1}\n"
	p := harness.Simple(t, more, map[string]string{
		"acme": harness.FileSink("acme"), "zest": harness.PatientHookSink(flaky), "plum": harness.PatientHookSink(closed),
	})
	main := p.Read("weir.yaml")
	database := servers.Postgres(t)
	harness.Exec(t, database, "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, entity text NOT NULL, payload jsonb)")
	p.Write("weir.yaml", harness.ReplaceOnce(t, main, "customers:", fmt.Sprintf(
		"  rows: {outbox: {url: %q, table: outbox}}\n"+
			"  late:\n    kafka: {brokers: [%q], topic: late, group: g}\n    entity: id\n    event_id: event\n"+
			"  posts: {http: {}, entity: id, event_id: event}\ncustomers:", database, late.ListenAddrs()[0])))
	p.Append("customers/acme.yaml", "checks: {crm: {}}\n")
	out, err := exec.Command(harness.Binary(t), "token", "new", "--tenant", "acme", "--may", "ingest,check", "--source", "posts", "--file", p.Path("tokens.yaml")).Output()
	require.NoError(t, err)
	p.Append("events.jsonl", harness.Many(60, 0, 3)+harness.Event(1, "E1", "r0")+
		harness.Event(5000, "bad", "x")+
		harness.Event(5001, "large", strings.Repeat("x", 2000)))
	for n := range 80 {
		p.Append("events.jsonl", fmt.Sprintf("not json, and another one each time: %d\n", n))
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(late.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "late", Value: []byte(`{"id":"K1","event":"k1","state":"a"}`)}).FirstErr())
	run := p.StartEnv(spans.Env(), "run")
	t.Cleanup(func() { run.Terminate(); run.Wait() })
	run.Ready(200)
	at := door{"http://" + run.Address("ingest"), strings.TrimSpace(string(out))}
	at.knock(t)
	p.Write("rows.jsonl", `{"event":"p2","id":"P2","state":"a"}`+"\nnot json\n")
	p.Start("import --source posts", p.Path("rows.jsonl")).Ok()
	p.Append("tokens.yaml", "  - id: NOT AN ID\n")
	harness.Eventually(t, "what is to be seen", func() error {
		// Tokens are read again for a request.
		if status, answer, err := at.try(t.Context(), http.MethodPost, "/v1/sources/posts/events", "application/json", `{"event":"p1","id":"P1","state":"a"}`); err != nil || status != 202 {
			return fmt.Errorf("%d %s (%w)", status, answer, err)
		}
		for _, want := range [][2]string{
			{"weir_dead_letters", `stage="ingest"`}, {"weir_dead_letters", `stage="decide"`}, {"weir_dead_letters", `stage="deliver"`},
			{"weir_service_paused", `service="plum/all@out"`}, {"weir_delivery_queued", `service="plum/all@out"`},
			{"weir_delivery_failures_total", `class="retry"`}, {"weir_deliveries_total", `service="zest/all@out"`},
			{"weir_decisions_total", `service="acme/all@out"`}, {"weir_ingest_events_total", `source="late"`},
			{"weir_api_requests_total", `status="422"`}, {"weir_idempotency_replays_total", `source="posts"`}, {"weir_idempotency_conflicts_total", `source="posts"`},
			{"weir_ledger_held", ""}, {"weir_checks_total", `decision="duplicate"`},
			{"weir_file_refused", `file="tokens"`}, {"weir_trace_spans_total", `outcome="exported"`},
		} {
			if run.Metric(want[0], want[1]) == 0 {
				return fmt.Errorf("%s with %s is 0", want[0], want[1])
			}
		}
		return nil
	})
	return run
}

// door is the API of a process and a token for it.
type door struct{ url, token string }

func (d door) try(ctx context.Context, method, path, kind, body string) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	r.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

func (d door) ask(t *testing.T, want int, method, path, kind, body string) (answer []byte) {
	t.Helper()
	status, answer, err := d.try(t.Context(), method, path, kind, body)
	require.NoError(t, err)
	require.Equal(t, want, status, "%s: %s", path, answer)
	return answer
}

// knock does what producers and callers do: an event, the same again, another
// one under its key, checks, and a file of which a row is wrong.
func (d door) knock(t *testing.T) {
	t.Helper()
	post := func(want int, path, kind, body string) []byte {
		t.Helper()
		return d.ask(t, want, http.MethodPost, path, kind, body)
	}
	const kind = "application/json"
	const events = "/v1/sources/posts/events"
	post(202, events, kind, `{"event":"p1","id":"P1","state":"a"}`)
	post(202, events, kind, `{"event":"p1","id":"P1","state":"a"}`)
	post(422, events, kind, `{"event":"p1","id":"P1","state":"b"}`)
	const service = "/v1/services/acme%2Fcrm@check/"
	const check = `{"entity":"P1","payload":{"state":"a"}}`
	var given struct{ Version int64 }
	require.NoError(t, json.Unmarshal(post(200, service+"check", kind, check), &given))
	post(200, service+"confirm", kind, fmt.Sprintf(`{"entity":"P1","version":%d}`, given.Version))
	post(200, service+"check:batch", kind, "["+check+"]")
}

var selector = regexp.MustCompile(`\b(?:weir_\w+|up)\b(?:\{[^}]*\})?`)

// Every query of the dashboard has data, every alert is evaluated without an
// error from series that exist, and no label grows with the data.
func TestQueriesAgainstARealScrape(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Prometheus")
	}
	run := busy(t)
	server := startPrometheus(t, run.Address("admin"), rulesFile)
	harness.Eventually(t, "some scrapes", func() error {
		if len(server.query(`count_over_time(weir_ready[10m]) > 2`)) == 0 {
			return harness.ErrNotYet
		}
		return nil
	})
	// A panel of a rate needs two scrapes of each series.
	for title, queries := range panelQueries(t) {
		for _, q := range queries {
			harness.Eventually(t, title, func() error {
				if len(server.query(q)) == 0 {
					return fmt.Errorf("no data for %s", q)
				}
				return nil
			})
		}
	}
	for _, a := range alerts(t) {
		server.query(a.Expr) // it can be evaluated
		names := selector.FindAllString(a.Expr, -1)
		require.NotEmpty(t, names, a.Alert)
		for _, name := range names {
			if strings.HasPrefix(name, "weir_source_slot_bytes") {
				continue // only of a PostgreSQL source; sources/postgres has its test
			}
			harness.Eventually(t, a.Alert, func() error { // a scrape that fails takes all series away until the next one
				if len(server.query(name)) == 0 {
					return fmt.Errorf("no series for %s", name)
				}
				return nil
			})
		}
	}
	t.Run("rules", func(t *testing.T) { checkRules(t, server) })
	t.Run("labels", func(t *testing.T) { checkLabels(t, server) })
}

func checkRules(t *testing.T, server *prometheus) {
	type state struct{ Name, Health, LastError, State string }
	var got map[string]state
	harness.Eventually(t, "an evaluation of the rules", func() error {
		var answer struct {
			Groups []struct{ Rules []state }
		}
		server.get("rules", nil, &answer)
		got = map[string]state{}
		for _, r := range answer.Groups[0].Rules {
			if r.Health == "unknown" {
				return harness.ErrNotYet
			}
			got[r.Name] = r
		}
		// What happens in this pipeline is noticed; it fires when it lasts. What
		// does not happen is not, but for as long as a slow machine makes it seem so:
		// a scrape or a look at the store that came too late.
		for _, name := range []string{"WeirDeadLetters", "WeirServicePaused", "WeirFileRefused"} {
			if s := got[name].State; s != "pending" && s != "firing" {
				return fmt.Errorf("%s is %s", name, s)
			}
		}
		for _, quiet := range []string{"WeirDown", "WeirNotReady", "WeirStoreDown", "WeirRecordsGone", "WeirGateUnchecked", "WeirReloadRefused",
			"WeirSourceDown", "WeirAPIFailing", "WeirChecksUndecided", "WeirKeyConflicts", "WeirLedgerMonthOver", "WeirOutboxBehind", "WeirSlotGrowing"} {
			if s := got[quiet].State; s != "inactive" {
				return fmt.Errorf("%s is %s", quiet, s)
			}
		}
		return nil
	})
	for _, a := range alerts(t) {
		require.Equal(t, "ok", got[a.Alert].Health, "%s: %s", a.Alert, got[a.Alert].LastError)
	}
}

func checkLabels(t *testing.T, server *prometheus) {
	// 60 entities and 80 kinds of rubbish went through: had they left a trace in
	// a label it would show here.
	words := map[string]*regexp.Regexp{
		"source": regexp.MustCompile(`^(events|late|posts|rows|control|)$`), "service": regexp.MustCompile(`^((acme|zest|plum)/all@out|acme/crm@check)$`),
		"topic": regexp.MustCompile(`^(weir\.(inbox|changes)|late)$`), "partition": regexp.MustCompile(`^\d{1,3}$`),
		"route":  regexp.MustCompile(`^(none|(GET|POST) /v1/[a-z0-9{}/.:@]+)$`),
		"status": regexp.MustCompile(`^(\d{3}|accepted|duplicate|refused)$`),
		"file":   regexp.MustCompile(`^(tokens|api_certificate|admin_certificate)$`),
		"stage":  regexp.MustCompile(`^(ingest|decide|deliver)$`), "handler_name": regexp.MustCompile(`^(decide|deliver|ingest\.(events|late|posts|rows))$`),
		"success": regexp.MustCompile(`^(true|false)$`), "le": regexp.MustCompile(`^[0-9.e+-]+$|^\+Inf$`),
	}
	fixed := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	of := map[string]map[string]bool{}
	var all []sample
	harness.Eventually(t, "all series", func() error {
		if all = server.query(`{__name__=~"weir_.*"}`); len(all) == 0 {
			return harness.ErrNotYet
		}
		return nil
	})
	for _, s := range all {
		for label, value := range s.Metric {
			switch label {
			case "__name__", "instance", "job":
				continue
			}
			allowed, known := words[label]
			if !known {
				require.Contains(t, []string{"outcome", "decision", "cause", "class", "code", "reason", "state", "listener", "result"}, label, "%v: a label that nobody bounds", s.Metric)
				allowed = fixed
			}
			require.Regexp(t, allowed, value, "%v", s.Metric)
			if of[label] == nil {
				of[label] = map[string]bool{}
			}
			of[label][value] = true
		}
	}
	require.NotEmpty(t, of["code"])
	require.LessOrEqual(t, len(of["code"]), 10)
}

// When each alert fires, and when it does not, by Prometheus' own tool.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	if testing.Short() {
		t.Skip("needs promtool")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "../../deploy/prometheus/weir.test.yml"}} {
		ctx, cancel := context.WithCancel(t.Context())
		out, err := exec.CommandContext(ctx, tool(t, "promtool"), args...).CombinedOutput()
		cancel()
		require.NoError(t, err, string(out))
	}
	cases, err := os.ReadFile("../../deploy/prometheus/weir.test.yml")
	require.NoError(t, err)
	for _, a := range alerts(t) {
		name := regexp.QuoteMeta(`alertname="` + a.Alert + `"`)
		require.Regexp(t, name+`.*exp_samples: \[\]`, string(cases), "when %s does not fire is not tested", a.Alert)
		require.Regexp(t, name+`.*value: 1`, string(cases), "that %s fires is not tested", a.Alert)
	}
}

// Each alert has a summary, and leads to a section of its
// own name.
func TestEveryAlertHasASection(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Weir\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[m[1]] = true
	}
	for _, a := range alerts(t) {
		require.True(t, sections[a.Alert], "docs/troubleshooting.md has no section %s", a.Alert)
		delete(sections, a.Alert)
		require.Equal(t, "https://github.com/seed-86dfc502/weir/blob/main/docs/troubleshooting.md#"+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
		require.NotEmpty(t, a.Annotations["description"], a.Alert)
		require.Contains(t, []string{"warning", "critical"}, a.Labels["severity"], a.Alert)
	}
	require.Empty(t, sections, "sections of alerts that there are not")
}
