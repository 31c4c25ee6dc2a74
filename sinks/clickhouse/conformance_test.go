package clickhouse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
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
var typed = config.Columns{{Name: "n", Type: "Int64"}, {Name: "label", Path: "text", Type: "Nullable(String)"}}

func TestConformance(t *testing.T) {
	for _, server := range []struct{ name, scheme string }{{"chdb", ""}, {"clickhouse", "clickhouse://"}} {
		t.Run(server.name, func(t *testing.T) {
			own := servers.StartOwn(t, server.name)
			for _, o := range []Options{
				{Table: "whole"},
				{Table: "typed", Columns: typed, PartitionBy: "cityHash64(entity) % 3"},
			} {
				t.Run(o.Table, func(t *testing.T) {
					o.URL, o.Service = server.scheme+own.Address+"/default", service
					sinktest.Run(t, target(t, o, own))
				})
			}
		})
	}
}

func target(t testing.TB, o Options, server *servers.Server) sinktest.Target {
	options, err := clickhouse.ParseDSN(o.URL)
	require.NoError(t, err)
	observer, err := clickhouse.Open(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, observer.Close()) })
	tg := sinktest.Target{
		Kind:    sinks.State,
		New:     func(t testing.TB) sinks.Sink { return newSink(t, o) },
		Service: service,
		State:   func(t testing.TB) map[string]sinktest.Row { return read(t, o, observer) },
		Refuse: func(t testing.TB) (refuse, allow func()) {
			return func() { execute(t, o.URL, "RENAME TABLE "+o.Table+" TO gone") }, func() { execute(t, o.URL, "RENAME TABLE gone TO "+o.Table) }
		},
		Outage: func(testing.TB) (down, up func()) { return server.Kill, server.Start },
	}
	if len(o.Columns) > 0 {
		tg.BadChange = func(c change.Change) change.Change {
			c.Doc = bytes.Replace(c.Doc, []byte(`"n":`), []byte(`"n":"canary-7c1f","m":`), 1)
			return c
		}
	}
	return tg
}

// newSink makes a sink that is closed with the test.
func newSink(t testing.TB, o Options) *Sink {
	s, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// withConn runs f on a connection of its own.
func withConn(t testing.TB, url string, f func(driver.Conn)) {
	t.Helper()
	options, err := clickhouse.ParseDSN(url)
	require.NoError(t, err)
	conn, err := clickhouse.Open(options)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	f(conn)
}

func execute(t testing.TB, url, statement string) {
	t.Helper()
	withConn(t, url, func(conn driver.Conn) { require.NoError(t, conn.Exec(t.Context(), statement)) })
}

func count(t testing.TB, url, query string) (n uint64) {
	t.Helper()
	withConn(t, url, func(conn driver.Conn) { require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n)) })
	return n
}

// current reads the view as a customer would.
func current(t testing.TB, o Options) (state map[string]sinktest.Row) {
	withConn(t, o.URL, func(conn driver.Conn) { state = read(t, o, conn) })
	return state
}

func read(t testing.TB, o Options, conn driver.Conn) map[string]sinktest.Row {
	state := map[string]sinktest.Row{}
	content := []string{"doc"}
	if len(o.Columns) > 0 {
		content = []string{"n", "label"}
	}
	rows, err := conn.Query(t.Context(), fmt.Sprintf("SELECT entity, version, %s FROM %s_current", strings.Join(content, ", "), o.Table))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var entity, doc string
		var version uint64
		if len(o.Columns) > 0 {
			var fields struct {
				N    int64   `json:"n"`
				Text *string `json:"text"`
			}
			require.NoError(t, rows.Scan(&entity, &version, &fields.N, &fields.Text))
			encoded, err := json.Marshal(fields)
			require.NoError(t, err)
			doc = string(encoded)
		} else {
			require.NoError(t, rows.Scan(&entity, &version, &doc))
		}
		require.NotContains(t, state, entity, "two rows of one entity")
		state[entity] = sinktest.Row{Version: change.Version(version), Op: change.Upsert, Doc: []byte(doc)}
	}
	require.NoError(t, rows.Err())
	return state
}
