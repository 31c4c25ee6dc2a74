package operate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/harness"
)

// withChecks returns the environment check services, some with rows.
func withChecks(t testing.TB, e *operate.Env, rows map[string][]string) {
	t.Helper()
	names := []string{"acme/crm@check", "acme/web@check", "zest/crm@check"}
	numbers, err := e.Store.Services(t.Context(), names)
	require.NoError(t, err)
	for _, name := range names {
		e.Checks = append(e.Checks, checks.Service{Name: name, Number: numbers[name]})
		var all []store.CheckRow
		for _, id := range rows[name] {
			row, _, err := checks.Decide(name, store.CheckRow{Key: store.Key{Service: numbers[name], Entity: id}},
				checks.Request{Entity: id, Content: checks.Given("A"), EventID: "e"}, time.UnixMicro(1))
			require.NoError(t, err)
			all = append(all, row)
		}
		_, err := e.Store.SwapCheckRows(t.Context(), all)
		require.NoError(t, err)
	}
	e.Checks = append(e.Checks, checks.Service{Name: "zest/never@check"})
}

// unknown returns the entities whose rows are unknown.
func unknown(t testing.TB, e *operate.Env, service string) (ids []string) {
	t.Helper()
	i := slices.IndexFunc(e.Checks, func(c checks.Service) bool { return c.Name == service })
	rows, err := e.Store.ServiceCheckRows(context.Background(), e.Checks[i].Number, "", 10_000)
	require.NoError(t, err)
	for _, row := range rows {
		if row.Content == nil {
			ids = append(ids, row.Entity)
		}
	}
	return ids
}

func TestWhichCheckRowsAreReset(t *testing.T) {
	listed := func(ids ...string) operate.Selection {
		return operate.Selection{List: strings.NewReader(strings.Join(ids, "\n"))}
	}
	all := operate.Selection{All: true}
	for name, c := range map[string]struct {
		task            operate.Task
		entities        int64 // that get a record
		unknown         int64
		crm, web, other []string
	}{
		"all":                        {operate.Task{Select: all}, 2, 0, []string{"a", "only"}, []string{"b"}, []string{"a"}},
		"one service":                {operate.Task{Select: all, Services: []string{"acme/crm@check"}}, 0, 0, []string{"a", "only"}, nil, nil},
		"check services of two":      {operate.Task{Select: all, Services: []string{"zest/crm@check", "acme/web@check"}}, 0, 0, nil, []string{"b"}, []string{"a"}},
		"a service of each sort":     {operate.Task{Select: all, Services: []string{aService, "acme/web@check"}}, 2, 0, nil, []string{"b"}, nil},
		"a service of the pipeline":  {operate.Task{Select: all, Services: []string{aService}}, 2, 0, nil, nil, nil},
		"one that was never asked":   {operate.Task{Select: all, Services: []string{"zest/never@check"}}, 0, 0, nil, nil, nil},
		"an entity":                  {operate.Task{Select: listed("a")}, 1, 0, []string{"a"}, nil, []string{"a"}},
		"an entity of checks alone":  {operate.Task{Select: listed("only", "nobody")}, 0, 1, []string{"only"}, nil, nil},
		"an entity of one service":   {operate.Task{Select: listed("a"), Services: []string{"zest/crm@check"}}, 0, 0, nil, nil, []string{"a"}},
		"an entity without such row": {operate.Task{Select: listed("b"), Services: []string{"zest/crm@check"}}, 0, 0, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e, log := newEnv(t)
			stock(t, e, "now", "a", "b")
			withChecks(t, e, map[string][]string{"acme/crm@check": {"a", "only"}, "acme/web@check": {"b"}, "zest/crm@check": {"a"}})
			c.task.Kind = operate.Reset
			dry, err := e.Preview(t.Context(), c.task)
			require.NoError(t, err)
			require.Empty(t, unknown(t, e, "acme/crm@check"), "a preview does nothing")
			result, err := e.Run(t.Context(), c.task)
			require.NoError(t, err)
			for service, want := range map[string][]string{"acme/crm@check": c.crm, "acme/web@check": c.web, "zest/crm@check": c.other} {
				require.Equal(t, want, unknown(t, e, service), service)
				at := slices.IndexFunc(dry.Services, func(f operate.ServiceEffect) bool { return f.Service == service })
				require.Equal(t, len(want) > 0, at >= 0, service)
				if at >= 0 {
					require.Equal(t, operate.ServiceEffect{Service: service, Reset: int64(len(want)), Check: true}, dry.Services[at])
				}
			}
			rows := int64(len(c.crm) + len(c.web) + len(c.other))
			require.Equal(t, []int64{c.entities, rows, c.unknown}, []int64{result.Entities, result.CheckRows, result.Unknown})
			require.Equal(t, []int64{c.entities, rows, c.unknown}, []int64{dry.Entities, dry.CheckRows, dry.Unknown})
			for _, r := range log.decoded(t) {
				for _, s := range r.Control.Services {
					require.Equal(t, aService, s, "records are for the services of the pipeline")
				}
			}
			audits, err := e.Store.Audits(t.Context(), store.AuditFilter{Limit: 10})
			require.NoError(t, err)
			require.Contains(t, string(audits[len(audits)-1].Detail), fmt.Sprintf(`"check_rows":%d`, rows))

			again, err := e.Run(t.Context(), c.task)
			require.NoError(t, err)
			require.Zero(t, again.CheckRows, "unknown already")
		})
	}
	e, _ := newEnv(t)
	withChecks(t, e, nil)
	_, err := e.Run(t.Context(), operate.Task{Kind: operate.Replay, Select: all, Services: []string{"acme/crm@check"}})
	require.ErrorAs(t, err, new(*operate.InvalidRequestError), "there is nothing to replay")
	require.ErrorContains(t, err, "is a check service")
}

// stuttering fails every other swap, before or after it was written.
type stuttering struct {
	operate.Store
	calls int
}

func (s *stuttering) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	s.calls++
	switch s.calls % 4 {
	case 1:
		return nil, errAway
	case 3:
		_, err := s.Store.SwapCheckRows(ctx, rows)
		return nil, errors.Join(errAway, err)
	}
	return s.Store.SwapCheckRows(ctx, rows)
}

// An interrupted reset of check rows resumes, over pages and services.
func TestCheckResetGoesOn(t *testing.T) {
	e, _ := newEnv(t)
	rows := map[string][]string{"acme/crm@check": ids(1203), "acme/web@check": ids(7), "zest/crm@check": ids(501)}
	withChecks(t, e, rows)
	broken := &stuttering{Store: e.Store}
	e.Store = broken
	task := operate.Task{Kind: operate.Reset, Select: operate.Selection{All: true}}
	var job, sum int64
	for attempt := 1; ; attempt++ {
		require.Less(t, attempt, 20)
		result, err := e.Run(t.Context(), task)
		if job != 0 {
			require.Equal(t, job, result.Job, "the same job")
		}
		job = result.Job
		require.GreaterOrEqual(t, result.CheckRows, sum)
		sum = result.CheckRows
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errAway)
	}
	for service, want := range rows {
		require.Equal(t, want, unknown(t, e, service))
	}
	require.Positive(t, sum)
	require.LessOrEqual(t, sum, int64(1203+7+501))
	jobs, err := e.Store.ListJobs(t.Context(), store.JobFilter{State: store.JobOpen, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, jobs)
}

// crm returns the way to a check service of a process.
func (w *world) crm(pr *harness.Process) *client.Service {
	w.T.Helper()
	c, err := client.New(client.Options{URL: "http://" + pr.Address("ingest"), Attempts: 20, MaxBackoff: time.Second})
	require.NoError(w.T, err)
	return c.Service("acme/crm@check")
}

// asking runs f with a process that answers, the one that runs or one for it.
func (w *world) asking(f func(crm *client.Service)) {
	w.T.Helper()
	pr := w.run
	if pr == nil {
		pr = w.Start("run")
		pr.Ready(200)
	}
	f(w.crm(pr))
	if w.run == nil {
		pr.Terminate()
		pr.Ok()
	}
}

const (
	apiSection = "api: {listen: \"127.0.0.1:0\"}\n"
	someChecks = "\nchecks: {crm: {}, web: {}}"
)

// A check service is reset as others are, also while it is asked.
func TestResetOfACheckService(t *testing.T) {
	everyWayWith(t, apiSection, func(t *testing.T, new func(map[string]string) *world) {
		w := new(map[string]string{"acme": harness.FileSink("acme") + someChecks})
		check := func(crm *client.Service, entity, event string, payload int) client.Answer {
			a, err := crm.Check(t.Context(), client.Check{Entity: entity, Payload: payload, EventID: event, Sequence: "7"})
			require.NoError(t, err)
			return a
		}
		var confirmed, open client.Answer
		w.asking(func(crm *client.Service) {
			confirmed = check(crm, "one", "e1", 1)
			require.NoError(t, crm.Confirm(t.Context(), "one", confirmed.Version))
			require.Equal(t, client.Duplicate, check(crm, "one", "e1", 1).Decision)
			open = check(crm, "two", "e2", 2)
		})
		dry := decode[struct {
			result
			CheckRows int64 `json:"check_rows"`
		}](t, w.say("reset --json --dry-run", "--service", "acme/crm@check"))
		require.EqualValues(t, 2, dry.CheckRows)
		require.EqualValues(t, 0, dry.Entities)
		require.Equal(t, "acme/crm@check", dry.Services[0].Service)
		require.EqualValues(t, 2, dry.Services[0].Reset)
		require.Contains(t, w.say("reset --dry-run --customer acme"), "2 check rows, nothing was done")
		require.Contains(t, w.say("reset --dry-run two"), "1 check row, nothing was done")

		done := w.say("reset --yes --wait", "--service", "acme/crm@check", "--reason", "they lost it")
		require.Regexp(t, `^job \d+: 2 check rows reset\n$`, done)
		audits := w.say("audit --json --limit 1000")
		require.Regexp(t, `"check_rows": 2`, audits)
		require.Contains(t, audits, "they lost it")
		w.asking(func(crm *client.Service) {
			again := check(crm, "one", "e1", 1)
			require.Equal(t, client.Pass, again.Decision)
			require.False(t, again.Repeated)
			require.Greater(t, again.Version, confirmed.Version)
			next := check(crm, "two", "e2", 2)
			require.False(t, next.Repeated)
			require.Greater(t, next.Version, open.Version)
			stale, err := crm.Check(t.Context(), client.Check{Entity: "two", Payload: 3, Sequence: "6"})
			require.NoError(t, err)
			require.Equal(t, client.Stale, stale.Decision, "the sequence is kept")
		})
		require.Regexp(t, `^job \d+: 1 check row reset\n$`, w.say("reset --yes --wait one"))

		for _, args := range [][]string{{"--service", "acme/none@check"}, {"--projection", "acme/crm"}} {
			w.fails(2, "reset --yes", args...)
		}
		require.Contains(t, w.fails(2, "replay", "--service", "acme/crm@check"), "that is a check service")
	})
}

// A reset that is killed behind any of its steps is completed by the same command.
func TestCheckResetSurvivesAKill(t *testing.T) {
	for _, point := range []string{crash.JobOpened, crash.ChecksReset, crash.JobSaved, crash.JobEnded} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := &world{Project: harness.Simple(t, apiSection, map[string]string{"acme": harness.FileSink("acme") + someChecks})}
			w.asking(func(crm *client.Service) {
				for n := range 5 {
					_, err := crm.Check(t.Context(), client.Check{Entity: fmt.Sprint("E", n), Payload: n})
					require.NoError(t, err)
				}
			})
			killed := w.StartEnv([]string{"WEIR_CRASH=" + point + "@reset:1"}, "reset", "--yes", "--all")
			require.Equal(t, -1, killed.Wait(), "it was not killed: %s", killed.Log.String())
			w.say("reset --yes --all")
			w.asking(func(crm *client.Service) {
				for n := range 5 {
					a, err := crm.Check(t.Context(), client.Check{Entity: fmt.Sprint("E", n), Payload: n})
					require.NoError(t, err)
					require.Equal(t, client.Pass, a.Decision)
					require.False(t, a.Repeated)
				}
			})
		})
	}
}
