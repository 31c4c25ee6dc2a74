package operate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// world is a simple project and, where it has one, its running pipeline.
type world struct {
	harness.Project
	run *harness.Process // nil while nobody runs
}

// way is how commands reach the pipeline.
type way struct {
	name    string
	servers bool // PostgreSQL and Kafka
	running bool
}

var ways = []way{{"embedded, nobody runs", false, false}, {"embedded, beside a process", false, true}, {"servers", true, true}}

// everyWay runs a test for each way that a command can take.
func everyWay(t *testing.T, f func(t *testing.T, new func(sinks map[string]string) *world)) {
	everyWayWith(t, "", f)
}

// everyWayWith adds sections to the main file.
func everyWayWith(t *testing.T, sections string, f func(t *testing.T, new func(sinks map[string]string) *world)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			if w.servers && testing.Short() {
				t.Skip("needs servers")
			}
			t.Parallel()
			var worlds []*world
			f(t, func(sinks map[string]string) *world {
				more := sections
				if w.servers {
					brokers, prefix := servers.Kafka(t)
					more += fmt.Sprintf("store: {postgres: {url: %q}}\nkafka: {brokers: [%q], prefix: %q, session_timeout: 1m}\n", servers.Postgres(t), brokers[0], prefix+"weir")
				}
				made := &world{Project: harness.Simple(t, more, sinks)}
				if w.running {
					made.run = made.Start("run")
					made.run.Ready(200)
				}
				worlds = append(worlds, made)
				return made
			})
			for _, made := range worlds {
				if made.run != nil { // in order, so that its consumer groups are empty
					made.run.Terminate()
					made.run.Ok()
				}
			}
		})
	}
}

// settle waits for changes in flight: until the condition holds where a
// pipeline runs, else by a run of its own.
func (w *world) settle(what string, f func() error) {
	w.T.Helper()
	if w.run == nil {
		w.Drain()
		require.NoError(w.T, f(), what)
		return
	}
	harness.Eventually(w.T, what, f)
}

// say runs a command that must succeed, and returns its output.
func (w *world) say(command string, args ...string) string {
	w.T.Helper()
	return w.Start(command, args...).Ok()
}

// fails runs a command that must end with a status, and returns its output.
func (w *world) fails(status int, command string, args ...string) string {
	w.T.Helper()
	pr := w.Start(command, args...)
	require.Equal(w.T, status, pr.Wait(), "%s %v: %s %s", command, args, pr.Out.String(), pr.Log.String())
	return pr.Log.String()
}

func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

type result struct {
	Operation string
	Job       int64
	Resumed   bool
	Entities  int64
	Unknown   int64
	Decided   bool
	Services  []struct {
		Service string
		Send    int64 `json:"would_send"`
		Hold    int64 `json:"would_hold_back"`
		Reset   int64 `json:"would_reset"`
	}
}

type auditRow struct {
	Actor, Action, Reason, Entity, Service string
	Detail                                 struct {
		Operation, State, Outcome string
		Entities                  int64
		Letters                   []int64
		Letter                    int64
	}
}

func (w *world) audits() []auditRow {
	w.T.Helper()
	return decode[[]auditRow](w.T, w.say("audit --json --limit 1000"))
}

// count counts the audit rows that f wants.
func count(rows []auditRow, f func(auditRow) bool) (n int) {
	for _, r := range rows {
		if f(r) {
			n++
		}
	}
	return n
}

// got wants an entity to have gone out in these states.
func (w *world) got(file, entity string, want ...string) func() error {
	return func() error {
		if have := harness.States(w.Whole(file), entity); fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("%s got %v, want %v", entity, have, want)
		}
		return nil
	}
}

// I10: a replay decides from the current merged document, and holds back content that the
// customer has; forced it sends it again. A reset makes the next content pass.
func TestReplayAndReset(t *testing.T) {
	everyWay(t, func(t *testing.T, new func(map[string]string) *world) {
		w := new(map[string]string{"acme": harness.FileSink("acme"), "zest": harness.FileSink("zest")})
		w.Append("events.jsonl", harness.Many(3, 0, 2))
		w.settle("the events", func() error {
			return errors.Join(harness.Settled(w.Whole("out/acme.jsonl"), 3, "r1"), harness.Settled(w.Whole("out/zest.jsonl"), 3, "r1"))
		})
		newest := []string{"r0", "r1"}
		require.NoError(t, w.got("out/acme.jsonl", "E0", newest...)())

		dry := decode[result](t, w.say("replay --json --dry-run", "--all"))
		require.EqualValues(t, 3, dry.Entities)
		require.Len(t, dry.Services, 2)
		require.EqualValues(t, 0, dry.Services[0].Send)
		require.EqualValues(t, 3, dry.Services[0].Hold)
		forced := decode[result](t, w.say("replay --json --dry-run", "E0", "nobody", "--force", "--service", "acme/all@out"))
		require.EqualValues(t, 1, forced.Entities)
		require.EqualValues(t, 1, forced.Unknown)
		require.Len(t, forced.Services, 1)
		require.EqualValues(t, 1, forced.Services[0].Send)
		require.Empty(t, w.audits(), "a dry run leaves nothing on record")

		held := decode[result](t, w.say("replay --json --wait", "--all"))
		require.EqualValues(t, 3, held.Entities)
		require.True(t, held.Decided)
		sent := decode[result](t, w.say("replay --json --wait", "E0", "--force", "--customer", "acme", "--reason", "they lost it"))
		require.EqualValues(t, 1, sent.Entities)
		w.settle("the forced one", w.got("out/acme.jsonl", "E0", "r0", "r1", "r1"))
		require.NoError(t, w.got("out/acme.jsonl", "E1", newest...)())
		require.NoError(t, w.got("out/zest.jsonl", "E0", newest...)())

		count1 := decode[result](t, w.say("reset --json --dry-run", "--projection", "zest/all"))
		require.EqualValues(t, 3, count1.Entities)
		require.EqualValues(t, 3, count1.Services[0].Reset)
		require.Contains(t, w.fails(2, "reset", "--projection", "zest/all"), "--yes")
		w.say("reset --wait --yes", "--projection", "zest/all", "--reason", "moved")
		require.NoError(t, w.got("out/zest.jsonl", "E2", newest...)(), "a reset sends nothing")
		w.say("replay --wait", "E2")
		w.settle("what was reset", w.got("out/zest.jsonl", "E2", "r0", "r1", "r1"))
		require.NoError(t, w.got("out/acme.jsonl", "E2", newest...)(), "the other customer's was not reset")

		rows := w.audits()
		require.Equal(t, 1, count(rows, func(r auditRow) bool {
			return r.Action == "replay" && r.Detail.State == "done" && r.Reason == "they lost it" && r.Detail.Entities == 1 && strings.Contains(r.Actor, "@")
		}))
		require.Equal(t, 1, count(rows, func(r auditRow) bool {
			return r.Action == "reset" && r.Detail.State == "done" && r.Detail.Entities == 3
		}))
		require.Zero(t, count(rows, func(r auditRow) bool { return r.Entity != "" }), "a part of a request has no row of its own")
	})
}

// Entities by a list, by a range of time, and those of an older configuration.
func TestReplaySelections(t *testing.T) {
	everyWay(t, func(t *testing.T, new func(map[string]string) *world) {
		w := new(map[string]string{"acme": harness.FileSink("acme")})
		w.Append("events.jsonl", harness.Many(4, 0, 1))
		w.settle("the events", func() error { return harness.Settled(w.Whole("out/acme.jsonl"), 4, "r0") })

		w.Write("list.txt", "E1\n\nE3\r\nnobody\n")
		listed := decode[result](t, w.say("replay --json --wait --force", "--entities", w.Path("list.txt")))
		require.EqualValues(t, 2, listed.Entities)
		require.EqualValues(t, 1, listed.Unknown)
		w.settle("the listed ones", func() error {
			return errors.Join(w.got("out/acme.jsonl", "E1", "r0", "r0")(), w.got("out/acme.jsonl", "E3", "r0", "r0")(), w.got("out/acme.jsonl", "E0", "r0")())
		})
		w.Write("bad.txt", "E1\n\x00\n")
		require.Contains(t, w.fails(2, "replay", "--entities", w.Path("bad.txt")), "line 2")

		late := decode[result](t, w.say("replay --json --wait --force", "--since", "1h", "--until", "30m"))
		require.EqualValues(t, 0, late.Entities)
		since := decode[result](t, w.say("replay --json --wait --force", "--since", "1h", "--rate", "100/s"))
		require.EqualValues(t, 4, since.Entities, "control records in that time are no events")
		w.settle("those of the last hour", w.got("out/acme.jsonl", "E0", "r0", "r0"))

		none := decode[result](t, w.say("replay --json --outdated"))
		require.EqualValues(t, 0, none.Entities)
		// A new projection: without events, only a backfill moves them.
		if w.run != nil {
			w.run.Terminate()
			w.run.Ok()
		}
		file := w.Path("customers/acme.yaml")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		w.Write("customers/acme.yaml", harness.ReplaceOnce(t, string(text), "{id: id, state: state}", "{id: id, state: state, kind: {const: banana}}"))
		require.Contains(t, w.fails(1, "replay", "--outdated"), "not the active configuration")
		if w.run != nil {
			w.run = w.Start("run")
			w.run.Ready(200)
		} else {
			w.Drain()
		}
		dry := decode[result](t, w.say("replay --json --outdated --dry-run"))
		require.EqualValues(t, 4, dry.Entities)
		require.EqualValues(t, 4, dry.Services[0].Send)
		moved := decode[result](t, w.say("replay --json --outdated --wait"))
		require.EqualValues(t, 4, moved.Entities)
		w.settle("the backfill", func() error {
			for _, r := range oracle.Newest(w.Whole("out/acme.jsonl")) {
				if !strings.Contains(string(r.Doc), "banana") {
					return fmt.Errorf("%s is still %s", r.Entity, r.Doc)
				}
			}
			return nil
		})
		require.EqualValues(t, 0, decode[result](t, w.say("replay --json --outdated --dry-run")).Entities)
	})
}

type replayed struct {
	ID      int64
	As      string
	Refused string
	State   string
}

// letters waits for as many open letters.
func (w *world) letters(n int) []harness.Letter {
	w.T.Helper()
	var all []harness.Letter
	w.settle("the dead letters", func() error {
		all = w.Letters()
		return harness.Want(len(all), n)
	})
	return all
}

// I5, I9: an event that could not be taken in is corrected and comes back; one
// that something newer made obsolete does not overwrite it, and says so.
func TestLettersOfEvents(t *testing.T) {
	everyWay(t, func(t *testing.T, new func(map[string]string) *world) {
		w := new(map[string]string{"acme": harness.FileSink("acme")})
		w.Append("events.jsonl", harness.Event(1, "A", "a1")+harness.Event(2, "B", "b1")+"{\n"+"[\n"+"nothing\n"+harness.Event(3, "B", "b2"))
		all := w.letters(3)
		w.settle("the others", w.got("out/acme.jsonl", "B", "b1", "b2"))
		first, second, third := fmt.Sprint(all[0].ID), fmt.Sprint(all[1].ID), fmt.Sprint(all[2].ID)
		require.Equal(t, "bad_json", all[0].Code)

		require.Contains(t, w.fails(1, "dlq replay", first), "cannot be replayed")
		w.Write("a.json", strings.TrimSpace(harness.Event(4, "A", "a2"))+"\n")
		w.Write("b.json", harness.Event(5, "B", "too late"))
		w.say("dlq edit --reason typo", first, "--file", w.Path("a.json"))
		w.say("dlq edit", second, "--file", w.Path("b.json"))
		require.Contains(t, w.say("dlq list", first), "edited")
		require.Contains(t, w.say("dlq replay --dry-run", first, second), "would be replayed")

		done := decode[[]replayed](t, w.say("dlq replay --wait --json", first, second))
		require.Equal(t, []replayed{{ID: all[0].ID, As: "event", State: "replayed"}, {ID: all[1].ID, As: "event", State: "obsolete"}}, done)
		w.settle("the corrected one", w.got("out/acme.jsonl", "A", "a1", "a2"))
		require.NoError(t, w.got("out/acme.jsonl", "B", "b1", "b2")(), "b2 came after it in the file")

		again := w.Start("dlq replay --json", first)
		require.Equal(t, 1, again.Wait())
		require.Equal(t, "it is replayed", decode[[]replayed](t, again.Out.String())[0].Refused)
		require.Contains(t, w.fails(1, "dlq edit", first, "--file", w.Path("a.json")), "replayed")
		require.Contains(t, w.fails(2, "dlq discard --all"), "--yes")
		require.Contains(t, w.say("dlq discard --all --yes --code bad_json --reason broken"), "1 dead letter discarded")
		require.Contains(t, w.fails(1, "dlq discard", third), "not open")
		require.Empty(t, w.Letters())
		require.Len(t, decode[[]harness.Letter](t, w.say("dlq list --json --state obsolete")), 1)

		rows := w.audits()
		for _, want := range []auditRow{{Action: "dlq edit", Reason: "typo"}, {Action: "dlq replay"}, {Action: "dlq discard", Reason: "broken"}} {
			require.NotZero(t, count(rows, func(r auditRow) bool {
				return r.Action == want.Action && r.Reason == want.Reason && len(r.Detail.Letters) > 0
			}), want.Action)
		}
		require.Equal(t, 1, count(rows, func(r auditRow) bool {
			return r.Action == "replay event" && r.Entity == "B" && r.Detail.Outcome == "obsolete" && r.Detail.Letter == all[1].ID
		}))
	})
}

// I9, I10: a refused change of a state sink is decided again from the current merged
// document; that of a log sink is sent again unchanged, late.
func TestLettersOfDeliveries(t *testing.T) {
	everyWay(t, func(t *testing.T, new func(map[string]string) *world) {
		state, log := harness.NewReceiver(t), harness.NewReceiver(t)
		hook := func(r *harness.Receiver, kind string) string {
			return harness.ReplaceOnce(t, harness.PatientHookSink(r), "retry:", "kind: "+kind+", retry:")
		}
		w := new(map[string]string{"state": hook(state, "state"), "log": hook(log, "log")})
		refuse := func(r oracle.Record) int {
			if harness.StateOf(r) == "bad" {
				return 422
			}
			return 200
		}
		state.Answers(refuse)
		log.Answers(refuse)
		w.Append("events.jsonl", harness.Event(1, "A", "bad")+harness.Event(2, "B", "bad"))
		all := w.letters(4)
		w.Append("events.jsonl", harness.Event(3, "B", "newer"))
		w.settle("the newer ones", func() error {
			return errors.Join(harness.Want(len(state.Received()), 1), harness.Want(len(log.Received()), 1))
		})
		state.Answers(nil)
		log.Answers(nil)
		// The newer B closed the letter of the state sink.
		all = slices.DeleteFunc(all, func(l harness.Letter) bool { return l.Service == "state/all@out" && l.Entity == "B" })
		require.Contains(t, w.fails(1, "dlq edit", fmt.Sprint(all[0].ID), "--file", w.Path("weir.yaml")), "follows from events")

		done := decode[[]replayed](t, w.say("dlq replay --wait --json --all --yes"))
		require.Len(t, done, len(all))
		for i, l := range all {
			want := replayed{ID: l.ID, As: "decide", State: "replayed"}
			if l.Service == "log/all@out" {
				want.As = "resend"
			}
			require.Equal(t, want, done[i], "%s %s", l.Service, l.Entity)
		}
		w.settle("the replayed ones", func() error {
			return errors.Join(harness.Want(len(state.Received()), 2), harness.Want(len(log.Received()), 3))
		})
		require.Equal(t, []string{"bad"}, harness.States(state.Received(), "A"))
		require.Equal(t, []string{"newer"}, harness.States(state.Received(), "B"))
		require.Equal(t, []string{"newer", "bad"}, harness.States(log.Received(), "B"), "late")
		for _, l := range all {
			if l.Service != "log/all@out" {
				continue
			}
			for _, r := range log.Received() {
				if r.Entity == l.Entity && harness.StateOf(r) == "bad" {
					require.Contains(t, *w.Letter(l.ID).Payload, r.Key, "its own key, so its own version and bytes")
				}
			}
		}
		require.Empty(t, w.Letters())
	})
}

// A change of a log sink that is refused once more is a letter once more.
func TestResentChangeDiesAgain(t *testing.T) {
	hook := harness.NewReceiver(t)
	hook.Answers(func(oracle.Record) int { return 422 })
	p := harness.Simple(t, "", map[string]string{"log": harness.ReplaceOnce(t, harness.PatientHookSink(hook), "retry:", "kind: log, retry:")})
	w := &world{Project: p}
	w.Append("events.jsonl", harness.Event(1, "A", "bad"))
	first := w.letters(1)[0]
	w.say("dlq replay --wait", fmt.Sprint(first.ID))
	second := w.letters(1)[0]
	require.Equal(t, first.ID, second.ID)
	require.EqualValues(t, 2, second.Count)
	require.Len(t, hook.Rejected(), 2)
	hook.Answers(nil)
	w.say("dlq replay --wait", fmt.Sprint(second.ID))
	w.Drain()
	require.Len(t, hook.Received(), 1)
}

// jobs reads the jobs of an embedded project, also while a process has it open.
func (w *world) jobs() []store.Job {
	w.T.Helper()
	s, err := sqlite.Open(w.T.Context(), sqlite.Options{Path: w.Path("data/state.db")})
	require.NoError(w.T, err)
	defer s.Close()
	jobs, err := s.ListJobs(w.T.Context(), store.JobFilter{Limit: 100})
	require.NoError(w.T, err)
	return jobs
}

// inMiddle waits until the only job has done so many. What follows has to come
// before its end, so its rate must leave a busy machine time.
func (w *world) inMiddle(done int64) {
	w.T.Helper()
	harness.Eventually(w.T, "the middle of the job", func() error {
		if jobs := w.jobs(); len(jobs) != 1 || jobs[0].Done < done {
			return harness.ErrNotYet
		}
		return nil
	})
}

// An interrupted command says so in the audit, and its job stays open.
func TestInterruptedCommand(t *testing.T) {
	w := &world{Project: harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})}
	w.Append("events.jsonl", harness.Many(60, 0, 1))
	w.Drain()
	w.run = w.Start("run")
	w.run.Ready(200)
	command := w.Start("replay --all --rate 0.2/s")
	w.inMiddle(1)
	require.NoError(t, command.Cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 1, command.Wait())
	require.Equal(t, 1, count(w.audits(), func(r auditRow) bool { return r.Detail.State == "cut off" }))
	require.Equal(t, store.JobOpen, w.jobs()[0].State)
	w.run.Terminate()
	w.run.Ok()
}

// A command beside a process that ends decides its records itself.
func TestProcessEndsWhileACommandRuns(t *testing.T) {
	w := &world{Project: harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})}
	w.Append("events.jsonl", harness.Many(10, 0, 1))
	w.Drain()
	w.run = w.Start("run")
	w.run.Ready(200)
	command := w.Start("replay --all --wait --json --rate 2/s")
	w.inMiddle(1)
	w.run.Terminate()
	w.run.Ok()
	require.NoFileExists(t, w.Path("data/state.db.control"))
	require.True(t, decode[result](t, command.Ok()).Decided)
}

// A command needs no listener of the process that runs, and makes no state.
func TestCommandBesideAProcess(t *testing.T) {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	w := &world{Project: p}
	require.Contains(t, w.fails(1, "replay --all"), "nothing has run")
	require.NoDirExists(t, w.Path("data"), "a command makes no state")
	w.Append("events.jsonl", harness.Many(1, 0, 1))
	w.Drain()
	text := w.Read("weir.yaml")
	w.Write("off.yaml", harness.ReplaceOnce(t, text, `listen: "127.0.0.1:0"`, `listen: "off"`))
	run := w.StartAs("off.yaml", "run")
	run.Says("msg=running")
	off := w.StartAs("off.yaml", "replay --all --wait --json")
	r := decode[result](t, off.Ok())
	require.EqualValues(t, 1, r.Entities)
	require.True(t, r.Decided)
	run.Kill()
}
