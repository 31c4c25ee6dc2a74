package postgres

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

const service = "acme/ripeness@warehouse"

var upsert, retract, batchOf = sinktest.Changes(service)

// typed are the columns for sinktest's documents.
var typed = config.Columns{{Name: "n", Type: "bigint"}, {Name: "The Text", Path: "text", Type: "text"}}

// lifetime keeps the suite's changes, which are some years old.
const lifetime = 200 * 365 * 24 * time.Hour

func TestConformance(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	for _, tc := range []struct {
		name    string
		options Options
	}{
		{"upsert jsonb", Options{Table: "upsert_jsonb"}},
		{"upsert typed", Options{Table: "public.Upsert Typed", Columns: typed}},
		{"append jsonb", Options{Table: "append_jsonb", Mode: Append}},
		{"append typed with retention", Options{Table: "append_typed", Mode: Append, Columns: typed, Retention: lifetime}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.options.URL, tc.options.Service = server.Address, service
			sinktest.Run(t, target(tc.options, server))
		})
	}
}

func target(o Options, server *servers.Server) sinktest.Target {
	table := newSink(nil, o).name.Sanitize()
	tg := sinktest.Target{
		Kind:    newSink(nil, o).Traits().Kind,
		New:     func(t testing.TB) sinks.Sink { return newSink(t, o) },
		Service: service,
		State: func(t testing.TB) map[string]sinktest.Row {
			state := map[string]sinktest.Row{}
			for _, c := range held(t, o, "entity") {
				require.NotContains(t, state, c.Entity, "two rows of one entity")
				state[c.Entity] = sinktest.Row{Version: c.Version, Op: c.Op, Doc: c.Doc}
			}
			return state
		},
		Log: func(t testing.TB) []change.Change { return held(t, o, "seq") },
		BadChange: func(c change.Change) change.Change {
			c.Doc = bytes.Replace(c.Doc, []byte(`canary`), []byte(`\u0000 canary`), 1)
			c.Doc = bytes.Replace(c.Doc, []byte(`"n":`), []byte(`"n":"canary-7c1f","m":`), 1)
			if !bytes.Contains(c.Doc, []byte(`canary`)) {
				c.Doc = []byte(`{"n":"\u0000"}`)
			}
			return c
		},
		Refuse: func(t testing.TB) (refuse, allow func()) {
			back := "ALTER TABLE gone RENAME TO " + pgx.Identifier{newSink(nil, o).name[len(newSink(nil, o).name)-1]}.Sanitize()
			return func() { execute(t, o.URL, "ALTER TABLE "+table+" RENAME TO gone") }, func() { execute(t, o.URL, back) }
		},
	}
	if server != nil {
		tg.Outage = func(testing.TB) (down, up func()) { return server.Kill, server.Start }
	}
	return tg
}

// newSink makes a sink that is closed with the test; t may be nil for one that is never opened.
func newSink(t testing.TB, o Options) *Sink {
	s, err := New(o)
	if t == nil {
		if err != nil {
			panic(err)
		}
		return s
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// held reads the table as a stranger would.
func held(t testing.TB, o Options, order string) (all []change.Change) {
	s := newSink(nil, o)
	content := "doc::text"
	if len(o.Columns) > 0 {
		content = `CASE WHEN NOT is_deleted THEN json_build_object('n', n, 'text', "The Text")::text END`
	}
	connection, err := pgx.Connect(t.Context(), o.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close(context.Background())) }()
	rows, err := connection.Query(t.Context(), fmt.Sprintf("SELECT service, entity, version, is_deleted, key, changed_at, %s FROM %s ORDER BY %s",
		content, s.name.Sanitize(), order))
	require.NoError(t, err)
	var c change.Change
	var version int64
	var deleted bool
	var doc *string
	_, err = pgx.ForEachRow(rows, []any{&c.Service, &c.Entity, &version, &deleted, &c.Key, &c.Time, &doc}, func() error {
		c := c
		c.Version, c.Op, c.Time = change.Version(version), change.Upsert, c.Time.UTC()
		if deleted {
			c.Op = change.Retract
			require.Nil(t, doc, "a retraction keeps a document")
		} else {
			c.Doc = []byte(*doc)
		}
		all = append(all, c)
		return nil
	})
	require.NoError(t, err)
	return all
}

func execute(t testing.TB, url, statement string, args ...any) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = connection.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
	require.NoError(t, connection.Close(t.Context()))
}
