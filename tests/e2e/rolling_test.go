//go:build verify

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// rolling makes a project over real servers with one main file and one customer
// file per revision: name to the YAML of the customer's projection. The session
// is long: no process is killed here, and one that a busy machine stops for a
// few seconds must not be taken for dead, since its attempt under way would then
// land behind its successor's.
func rolling(t *testing.T, c *harness.Cluster, revisions map[string]string) harness.Project {
	files := map[string]string{}
	for name, projection := range revisions {
		files[name+".yaml"] = fmt.Sprintf(`
store: {postgres: {url: %q}}
kafka: {brokers: [%q], prefix: %q, session_timeout: 20s, inbox: {partitions: 4}}
sources:
  events: {kafka: {topic: %q}, entity: key, strip: [n]}
customers: [%s-acme.yaml]
admin: {listen: "127.0.0.1:0"}
`, c.Store, c.Brokers[0], c.Prefix+"weir", c.Prefix+"events", name)
		files[name+"-acme.yaml"] = "customer: acme\nprojections:\n  all:\n" + projection
	}
	c.Topics(4, c.Prefix+"events")
	return harness.NewProject(t, files)
}

// viewed is the content of the rolling deploy's documents.
type viewed struct {
	ID, State string
	View      int
}

func viewOf(t *testing.T, r oracle.Record) (v viewed) {
	require.NoError(t, json.Unmarshal(r.Doc, &v))
	return v
}

// inOrder checks that a service never receives an earlier view or
// version of an entity. At a sink where an attempt may be seen twice, a record
// that was there before says nothing new.
func inOrder(t *testing.T, records []oracle.Record) {
	t.Helper()
	seen := map[string]bool{}
	version, view := map[string]uint64{}, map[string]int{}
	for _, r := range records {
		if seen[r.Key] {
			continue
		}
		seen[r.Key] = true
		v := viewOf(t, r)
		require.Greater(t, r.Version, version[r.Entity], r.Entity)
		require.GreaterOrEqual(t, v.View, view[r.Entity], "%s: an older view after a newer one", r.Entity)
		version[r.Entity], view[r.Entity] = r.Version, v.View
	}
}

// rollingLoad sends events with serial numbers, and reads what both sinks have of them.
type rollingLoad struct {
	t      *testing.T
	c      *harness.Cluster
	hook   *harness.Receiver
	serial int
}

func (l *rollingLoad) event(entity, state string) *kgo.Record {
	l.serial++
	return harness.Record(l.c.Prefix+"events", entity, fmt.Sprintf(`{"id":%q,"state":%q,"n":%d}`, entity, state, l.serial))
}

// tick sends a new state of each busy entity, and noise of the noisy ones.
func (l *rollingLoad) tick(busy, noisy int) {
	var all []*kgo.Record
	for e := range busy {
		all = append(all, l.event(fmt.Sprint("busy", e), fmt.Sprint("s", l.serial)))
	}
	for e := range noisy {
		all = append(all, l.event(fmt.Sprint("noisy", e), "same"))
	}
	l.c.Send(all...)
}

func (l *rollingLoad) history() []oracle.Record {
	return l.c.Rows("history", "acme/all@history", "seq")
}

// shows returns nil when the newest record of each entity of a kind has a view.
func (l *rollingLoad) shows(kind string, n, view int) error {
	for sink, records := range map[string][]oracle.Record{"hook": l.hook.Received(), "history": l.history()} {
		newest := oracle.Newest(records)
		for e := range n {
			id := fmt.Sprint(kind, e)
			r, ok := newest[id]
			if !ok {
				return fmt.Errorf("%s: %s has nothing", sink, id)
			}
			if got := viewOf(l.t, r).View; got != view {
				return fmt.Errorf("%s: %s shows view %d, want %d", sink, id, got, view)
			}
		}
	}
	return nil
}

// lastStates sends a last state of each busy entity and waits until both sinks have it.
func (l *rollingLoad) lastStates(busy int) {
	last := map[string]string{}
	var end []*kgo.Record
	for e := range busy {
		id := fmt.Sprint("busy", e)
		last[id] = fmt.Sprint("end", e)
		end = append(end, l.event(id, last[id]))
	}
	l.c.Send(end...)
	harness.Eventually(l.t, "the last states", func() error {
		for _, records := range [][]oracle.Record{l.hook.Received(), l.history()} {
			newest := oracle.Newest(records)
			for id, state := range last {
				if r := newest[id]; harness.StateOf(r) != state {
					return fmt.Errorf("%s has %s, want %s", id, r.Doc, state)
				}
			}
		}
		return nil
	})
}

// I4, I12: rolling deploys under load, old and new processes side by side, each
// followed by a restart. The older ones are fenced and not ready; no service gets
// an older view of an entity after a newer one; entities that get nothing but
// noise move at their next event, those that get nothing by the backfill; and
// in any case each of these gets each view once.
func TestRollingDeploysUnderLoad(t *testing.T) {
	const busy, noisy, idle, rounds = 40, 30, 30, 3
	c := harness.NewCluster(t)
	hook := harness.NewReceiver(t)
	revisions := map[string]string{}
	for n := range rounds {
		revisions[fmt.Sprint("r", n)] = fmt.Sprintf(`
    fields: {id: id, state: state, view: {const: %d}}
    deliver:
      hook: %s
      history: {postgres: {url: %q, table: history, mode: append, columns: {doc: {type: json, path: "@this"}}}}
`, n, harness.PatientHookSink(hook), c.Target)
	}
	p := rolling(t, c, revisions)
	l := &rollingLoad{t: t, c: c, hook: hook}
	tick := func() { l.tick(busy, noisy) }
	for e := range idle {
		c.Send(l.event(fmt.Sprint("idle", e), "same"))
	}
	var running []*harness.Process
	stop := func(pr *harness.Process) {
		pr.Terminate()
		pr.Ok()
	}
	for n := range rounds {
		name := fmt.Sprintf("r%d.yaml", n)
		old := running
		running = nil
		for range 2 { // one after the other, the old ones at work beside them
			tick()
			pr := p.StartAs(name, "run")
			pr.Ready(200)
			running = append(running, pr)
			tick()
			for _, o := range old {
				require.False(t, o.Ended())
				o.Ready(503)
			}
		}
		harness.Eventually(t, "busy and noisy entities show the new view", func() error {
			tick()
			if err := l.shows("busy", busy, n); err != nil {
				return err
			}
			return l.shows("noisy", noisy, n)
		})
		if n > 0 {
			require.NoError(t, l.shows("idle", idle, n-1), "without event or backfill nothing moves")
			p.StartAs(name, "replay --outdated --wait").Ok()
		}
		harness.Eventually(t, "idle entities show the new view", func() error { return l.shows("idle", idle, n) })
		for _, o := range old {
			stop(o)
		}
		// A restart of one of the new ones under load changes nothing.
		tick()
		stop(running[0])
		running[0] = p.StartAs(name, "run")
		running[0].Ready(200)
		tick()
	}
	l.lastStates(busy)
	for _, pr := range running {
		stop(pr)
	}
	inOrder(t, hook.Received())
	inOrder(t, l.history())
	for kind, n := range map[string]int{"idle": idle, "noisy": noisy} {
		views := map[string][]int{}
		for _, r := range l.history() {
			views[r.Entity] = append(views[r.Entity], viewOf(t, r).View)
		}
		for e := range n {
			require.Equal(t, []int{0, 1, 2}, views[fmt.Sprint(kind, e)], "%s%d", kind, e)
		}
	}
	require.Empty(t, p.LettersAs("r2.yaml"))
}

// levels reads a column of a customer's table: entity to the column's text.
// Without the table there is nothing.
func levels(t *testing.T, url, query string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	all := map[string]string{}
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		require.ErrorContains(t, err, "42P01")
		return all
	}
	defer rows.Close()
	for rows.Next() {
		var entity, text string
		require.NoError(t, rows.Scan(&entity, &text))
		all[entity] = text
	}
	require.NoError(t, rows.Err())
	return all
}

// I9, I12: changes that were decided under the old configuration, for a column
// of text, meet a table whose column is a number by now. They are decided again
// under the new configuration and arrive as that says, also those about deleted
// entities, and the service does not pause. Only changes that a log
// should have got before the newest change of an entity become dead letters.
func TestChangesOfTheOldConfigurationMeetAChangedTable(t *testing.T) {
	const entities = 60 // enough for the sink to say that the table refuses everything alike
	c := harness.NewCluster(t)
	revision := func(field, kind string) string {
		return fmt.Sprintf(`
    fields: {id: id, level: %[1]s}
    deliver:
      current: {postgres: {url: %[3]q, table: current, columns: {level: {type: %[2]s, path: level}}}}
      history: {postgres: {url: %[3]q, table: history, mode: append, columns: {level: {type: %[2]s, path: level}}}, history: {keep: 7d}}
`, field, kind, c.Target)
	}
	p := rolling(t, c, map[string]string{"old": revision("name", "text"), "new": revision("number", "bigint")})
	say := func(from, to, round int) {
		var all []*kgo.Record
		for e := from; e < to; e++ {
			id := fmt.Sprint("E", e)
			all = append(all, harness.Record(c.Prefix+"events", id, fmt.Sprintf(`{"id":%q,"name":"level %d","number":%d}`, id, e*10+round, e*10+round)))
		}
		c.Send(all...)
	}
	drain := func(config string) {
		t.Helper()
		p.StartAs(config, "run --until-idle").Ok()
	}
	services := []string{"acme/all@current", "acme/all@history"}
	decide := func(events int64) {
		t.Helper()
		run := p.StartAs("old.yaml", "run")
		harness.Eventually(t, "all is decided", func() error {
			return harness.Want(harness.Number(t, c.Store, "SELECT sum(next_offset) FROM watermarks"), events)
		})
		run.Terminate()
		run.Ok()
	}
	say(0, entities/2, 0)
	drain("old.yaml")
	require.Len(t, levels(t, c.Target, "SELECT entity, level FROM current"), entities/2)
	// Old decisions that wait: two of each entity, and a retraction.
	for _, s := range services {
		p.StartAs("old.yaml", "pause "+s+" --reason migration").Ok()
	}
	say(0, entities, 1)
	decide(entities/2 + entities)
	say(0, entities, 2)
	gone := harness.Record(c.Prefix+"events", "E0", "")
	gone.Value = nil
	c.Send(gone)
	decide(entities/2 + 2*entities + 1)
	for _, s := range services {
		p.StartAs("old.yaml", "resume "+s+" --reason migrated").Ok()
	}
	harness.Exec(t, c.Target, "DROP VIEW current_current", "ALTER TABLE current ALTER COLUMN level TYPE bigint USING length(level)", "ALTER TABLE history ALTER COLUMN level TYPE bigint USING length(level)")

	drain("new.yaml")
	got := levels(t, c.Target, "SELECT entity, level::text FROM current WHERE NOT is_deleted")
	require.Len(t, got, entities-1)
	for e := 1; e < entities; e++ {
		require.Equal(t, fmt.Sprint(e*10+2), got[fmt.Sprint("E", e)])
	}
	require.Empty(t, levels(t, c.Target, "SELECT entity, level::text FROM current WHERE is_deleted AND level IS NOT NULL"))
	newest := levels(t, c.Target, "SELECT DISTINCT ON (entity) entity, coalesce(level::text, 'gone') FROM history ORDER BY entity, version DESC")
	for e := 1; e < entities; e++ {
		require.Equal(t, fmt.Sprint(e*10+2), newest[fmt.Sprint("E", e)])
	}
	require.Equal(t, "gone", newest["E0"])
	require.Zero(t, harness.Number(t, c.Target, "SELECT count(*) FROM (SELECT entity, version < max(version) OVER (PARTITION BY entity ORDER BY seq ROWS UNBOUNDED PRECEDING) AS back FROM history) h WHERE back"), "versions never go back")
	require.EqualValues(t, entities-1, harness.Number(t, c.Target, fmt.Sprintf("SELECT count(*) FROM history WHERE entity <> 'E0' AND level = ANY (SELECT e * 10 + 2 FROM generate_series(0, %d) e)", entities)), "the new content once each")
	// A log is to get every change: those that are not the newest of their entity
	// are not decided again, and must not be nowhere.
	letters := map[string]int{}
	for _, l := range p.LettersAs("new.yaml") {
		require.Equal(t, "acme/all@history", l.Service)
		letters[l.Entity]++
	}
	require.Equal(t, 2, letters["E0"])
	for e := 1; e < entities; e++ {
		require.Equal(t, 1, letters[fmt.Sprint("E", e)])
	}
	require.Positive(t, harness.Number(t, c.Store, "SELECT count(*) FROM deliveries WHERE outcome = 'redecided'"), "in the delivery history")

	// From here on it is as if nothing had been.
	say(1, entities, 3)
	drain("new.yaml")
	for id, level := range levels(t, c.Target, "SELECT entity, level::text FROM current WHERE NOT is_deleted") {
		require.True(t, strings.HasSuffix(level, "3"), "%s has %s", id, level)
	}
}

// I12: a process with the old configuration that still delivers does not write
// changes decided by the new one: it does not know the new column, which would
// stay empty.
func TestOldProcessDoesNotWriteNewChanges(t *testing.T) {
	const grade = ", grade: grade"
	t.Run("the view and the table differ", func(t *testing.T) { oldDoesNotWriteNew(t, "", grade) })
	t.Run("the table alone differs", func(t *testing.T) { oldDoesNotWriteNew(t, grade, grade) })
}

// oldDoesNotWriteNew takes the extra members of the old and the new view over a state.
func oldDoesNotWriteNew(t *testing.T, before, after string) {
	const entities = 40
	c := harness.NewCluster(t)
	revision := func(more, column string) string {
		return fmt.Sprintf(`
    fields: {id: id, state: state%s}
    deliver:
      current: {postgres: {url: %q, table: current, columns: {state: {type: text, path: state}%s}}}
`, more, c.Target, column)
	}
	p := rolling(t, c, map[string]string{"old": revision(before, ""), "new": revision(after, ", grade: {type: text, path: grade}")})
	say := func(state string) {
		var all []*kgo.Record
		for e := range entities {
			id := fmt.Sprint("E", e)
			all = append(all, harness.Record(c.Prefix+"events", id, fmt.Sprintf(`{"id":%q,"state":%q,"grade":"I"}`, id, state)))
		}
		c.Send(all...)
	}
	const states = "SELECT entity, state FROM current"
	has := func(state string) func() error {
		return func() error {
			got := levels(t, c.Target, states)
			for e := range entities {
				if s := got[fmt.Sprint("E", e)]; s != state {
					return fmt.Errorf("E%d has %q, want %q", e, s, state)
				}
			}
			return nil
		}
	}
	old := p.StartAs("old.yaml", "run")
	say("A")
	harness.Eventually(t, "the old process delivers", has("A"))
	harness.Exec(t, c.Target, "DROP VIEW current_current", "ALTER TABLE current ADD COLUMN grade text")

	newer := p.StartAs("new.yaml", "run")
	newer.Ready(200)
	say("B")
	old.Says("event=revision.superseded")
	old.Ready(503)
	harness.Eventually(t, "the new process delivers", has("B"))
	require.Zero(t, harness.Number(t, c.Target, "SELECT count(*) FROM current WHERE grade IS DISTINCT FROM 'I'"))

	// A roll-back: the old process comes back by itself and delivers again.
	newer.Terminate()
	<-newer.Done
	back := p.StartAs("old.yaml", "run --activate --role work")
	old.Ready(200)
	say("C")
	harness.Eventually(t, "the old one delivers again", has("C"))
	for _, pr := range []*harness.Process{back, old} {
		pr.Terminate()
		pr.Ok()
	}
}
