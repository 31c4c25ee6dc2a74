package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// In a world with tables the sources are tables of a PostgreSQL of its own, read by logical
// replication. Their slot is older than the first statements, so the first process reads rows and
// changes. Later statements follow the kill.
type tables struct {
	url   string
	later []event // executed after the kill: each of them must be in the inbox
	rest  []event // not executed yet
	all   []event // executed
}

const tablesFile = `
%[1]s
sources:
  shop:
    postgres:
      url: %[2]q
      tables:
        public.registry: {entity: id, source: registry, strip: ["updated_at", "items.*.seen_at"]}
        public.lab: {entity: id, source: lab, mount: lab}
        public.overlay: {entity: id, source: overlay}
`

const createTables = `CREATE TABLE registry (id text PRIMARY KEY, serial int, updated_at int, weight numeric, origin text, items jsonb);
	CREATE TABLE lab (id text PRIMARY KEY, serial int, level int);
	CREATE TABLE public.overlay (id text PRIMARY KEY, serial int, grade text)`

// newTables makes a world with tables; prepared: weir source prepare has made the slot.
func newTables(t testing.TB, on string, prepared bool) *world {
	w, backing := emptyWorld(t, on)
	w.tables = &tables{url: servers.StartOwn(t, "postgres").Address}
	w.configure(backing, "", "", "", "")
	_, common, ok := strings.Cut(mainFile, "merge:")
	require.True(t, ok)
	w.Write("weir.yaml", fmt.Sprintf(tablesFile, backing, w.tables.url)+"merge:"+common)
	seen := map[string]bool{}
	for n, e := range events() {
		// A table has no repetitions, and no event that comes late.
		if serial := e.head(t).Serial; !seen[serial] && e.head(t).LSN > n-100 {
			seen[serial] = true
			w.tables.rest = append(w.tables.rest, e)
		}
	}
	harness.Exec(t, w.tables.url, createTables)
	if prepared {
		e := w.command("", "source", "prepare")
		require.Zero(t, e.code, e.log)
	}
	w.execute(len(w.tables.rest) * 2 / 3)
	return w
}

// head is the part of an event beside its payload.
type head struct {
	Serial string `json:"event_id"`
	Op     string
	LSN    int
	Data   json.RawMessage
}

func (e event) head(t testing.TB) (h head) {
	require.NoError(t, json.Unmarshal([]byte(e.json), &h))
	return h
}

// execute executes the next events as statements, some in one transaction.
func (w *world) execute(n int) {
	conn, err := pgx.Connect(w.t.Context(), w.tables.url)
	require.NoError(w.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	now := w.tables.rest[:n]
	w.tables.rest = w.tables.rest[n:]
	w.tables.all = append(w.tables.all, now...)
	w.tables.later = now
	for ; len(now) > 0; now = now[min(4, len(now)):] {
		err := pgx.BeginFunc(w.t.Context(), conn, func(tx pgx.Tx) error {
			for _, e := range now[:min(4, len(now))] {
				h := e.head(w.t)
				if _, err := tx.Exec(w.t.Context(), "DELETE FROM public."+e.source+" WHERE id = $1 AND $2", e.entity, h.Op == "delete"); err != nil {
					return err
				}
				if h.Op == "delete" {
					continue
				}
				sql := fmt.Sprintf("MERGE INTO public.%[1]s t USING (SELECT * FROM jsonb_populate_record(NULL::public.%[1]s, $1)) n ON n.id = t.id"+
					" WHEN MATCHED THEN UPDATE SET %[2]s WHEN NOT MATCHED THEN INSERT VALUES (n.*)", e.source, map[string]string{
					"registry": "serial = n.serial, updated_at = n.updated_at, weight = n.weight, origin = n.origin, items = n.items",
					"lab":      "serial = n.serial, level = n.level", "overlay": "serial = n.serial, grade = n.grade",
				}[e.source])
				row := strings.TrimSuffix(string(h.Data), "}") + fmt.Sprintf(`,"id":%q,"serial":%s}`, e.entity, strings.TrimPrefix(h.Serial, "e-"))
				if _, err := tx.Exec(w.t.Context(), sql, row); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(w.t, err)
	}
}

// expectedOfTables is expected of a world with tables. The later statements are all in the inbox,
// in their order by row, but for those that the first reading of the rows contains.
func (w *world) expectedOfTables() oracle.Expected {
	config := described()
	for i := range config.Sources {
		config.Sources[i].Sequence, config.Sources[i].EventID, config.Sources[i].Patch = "", "", false
	}
	var inbox []oracle.Event
	seen := map[string][]string{} // serials of a row, or deleted
	for _, r := range w.Inbox() {
		require.Len(w.t, r.Headers, 1)
		record, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		require.NoError(w.t, err)
		e := record.Event
		if e == nil {
			continue
		}
		var row struct{ Serial json.Number }
		op, data, what := "delete", []byte("null"), "deleted"
		if e.Payload != nil {
			require.NoError(w.t, json.Unmarshal(e.Payload, &row))
			op, data, what = "upsert", e.Payload, row.Serial.String()
		}
		seen[e.Source+" "+e.Entity] = append(seen[e.Source+" "+e.Entity], what)
		inbox = append(inbox, oracle.Event{
			Source: e.Source, Stream: e.Topic, Offset: e.Offset<<10 | e.Index, Version: 1<<48 | uint64(r.Offset),
			Value: fmt.Appendf(nil, `{"id":%q,"op":%q,"data":%s}`, e.Entity, op, data),
		})
	}
	found, leftOut := map[string]bool{}, map[string]string{} // by row
	for _, e := range w.tables.later {
		h, row := e.head(w.t), e.source+" "+e.entity
		want := strings.TrimPrefix(h.Serial, "e-")
		if h.Op == "delete" {
			delete(leftOut, row) // it was not there any more when the rows were read
			continue             // perhaps of a row that was not there
		}
		at := -1
		for i, what := range seen[row] {
			if what == want {
				at = i
				break
			}
		}
		if at < 0 && !found[row] {
			leftOut[row] = want
			continue
		}
		require.GreaterOrEqual(w.t, at, 0, "%s: statement %s is not in the inbox, or behind a later one", row, want)
		found[row] = true
		delete(leftOut, row)
		seen[row] = seen[row][at+1:]
	}
	require.Empty(w.t, leftOut, "statements that neither the rows nor the changes have")
	require.Zero(w.t, w.count("SELECT count(*) FROM dead_letters WHERE stage <> 'deliver'"), "dead letters of ingest")
	var ideal []oracle.Event
	for i, e := range w.tables.all {
		ideal = append(ideal, oracle.Event{Source: e.source, Version: uint64(i), Value: []byte(e.json)})
	}
	return w.sameEnd(config, inbox, ideal)
}

// slotCells returns the cells of a PostgreSQL source. usual is how often points are passed in a
// run without a kill.
func slotCells(on string, usual map[string]int) []cell {
	var all []cell
	for _, point := range crash.SlotPoints() {
		c := cell{on: on, point: point, place: "shop", nth: 1, tables: true}
		if point == crash.RowsAppended || point == crash.RowsStored || point == crash.RowsDone {
			c.place = "registry"
		}
		all = append(all, c)
		if c.nth = usual[point+" "+c.place]/2 + 1; c.nth > 1 {
			all = append(all, c)
		}
	}
	return all
}

// A process that dies at any point of a PostgreSQL source is continued by the next.
func TestTablesKilledAtSomePoints(t *testing.T) {
	for _, c := range []cell{
		{on: onSQLite, point: crash.SlotMade, place: "shop", nth: 1, tables: true},
		{on: onSQLite, point: crash.RowsAppended, place: "registry", nth: 1, tables: true},
		{on: onPostgres, point: crash.ChangesStored, place: "shop", nth: 1, tables: true},
	} {
		t.Run(c.on+" "+c.spec(c.nth), func(t *testing.T) {
			t.Parallel()
			for sink, found := range c.run(t) {
				if !found.zero() {
					t.Errorf("%s: lost / duplicate / stale / out of order = %s: %s", sink, found, strings.Join(found.notes, "; "))
				}
			}
		})
	}
}
