package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// The same values arrive under any settings of server, database, role or URL.
func TestTheSessionDecidesNothing(t *testing.T) {
	address := servers.Postgres(t)
	columns := config.Columns{
		{Name: "day", Type: "date"}, {Name: "at", Type: "timestamptz"}, {Name: "wall", Type: "timestamp"}, {Name: "clock", Type: "time"},
		{Name: "zoned", Type: "timetz"}, {Name: "span", Type: "interval"}, {Name: "many", Type: "timestamptz[]"}, {Name: "price", Type: "money"},
		{Name: "custom", Type: "moment"}, {Name: "range", Type: "tstzrange"},
	}
	execute(t, address, "CREATE DOMAIN moment AS timestamptz(3)")
	const doc = `{"day":"1960-05-05T23:30:00Z","at":"2026-07-01 10:00:00.1234567","wall":"2026-07-01T10:00:00Z","clock":"10:30:00","zoned":"10:30:00+02:00",
		"span":"-1 2:03:04","many":["2026-07-01",null],"price":1234.5,"custom":"1969-12-31T23:59:59.9999Z","range":"[2026-07-01 10:00, 2026-07-02 10:00)"}`
	const want = `{"day":"1960-05-05","at":"2026-07-01T10:00:00.123456+00:00","wall":"2026-07-01T10:00:00","clock":"10:30:00","zoned":"10:30:00+02",` +
		`"span":"-1 days +02:03:04","many":["2026-07-01T00:00:00+00:00",null],"price":"$1,234.50","custom":"1969-12-31T23:59:59.999+00:00",` +
		`"range":"[\"2026-07-01 10:00:00+00\",\"2026-07-02 10:00:00+00\")"}`
	reader := connect(t, address)
	_, err := reader.Exec(t.Context(), "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET lc_monetary = 'C'")
	require.NoError(t, err)
	for i, session := range []string{
		"-cTimeZone=UTC", "-cTimeZone=Asia/Kathmandu -cDateStyle=SQL,DMY -cIntervalStyle=sql_standard", "-cTimeZone=America/New_York -cDateStyle=German",
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		table := fmt.Sprint("sessions_", i)
		s := opened(t, Options{URL: withParameter(t, address, "options", u.Query().Get("options")+" "+session), Table: table, Columns: columns})
		c := upsert("a", 1, "")
		c.Doc = []byte(doc)
		require.NoError(t, s.Write(t.Context(), []change.Change{c}), session)
		var row string
		require.NoError(t, reader.QueryRow(t.Context(), `SELECT row_to_json(r)::text FROM (SELECT day, "at", wall, clock, zoned, span, many, price, custom, "range" FROM `+table+") r").Scan(&row))
		require.Equal(t, want, row, session)
	}
}

// Units, and losses that are refused.
func TestValuesAreReadStrictly(t *testing.T) {
	address := servers.Postgres(t)
	execute(t, address, `CREATE TABLE strict (service text, entity text, version bigint, is_deleted boolean, key text, changed_at timestamptz, synced_at timestamptz,
		d date, ts timestamp(3), tz timestamptz, n numeric(12,3), nn numeric(12,3)[], t time, PRIMARY KEY (service, entity))`)
	s := opened(t, Options{URL: address, Table: "strict", Columns: config.Columns{
		{Name: "d", Path: "d", Type: "date", Unit: "days"}, {Name: "ts", Path: "ts", Type: "timestamp", Unit: "millis"}, {Name: "tz", Path: "tz", Type: "timestamptz"},
		{Name: "n", Path: "n", Type: "numeric"}, {Name: "nn", Path: "nn", Type: "numeric[]"}, {Name: "t", Path: "t", Type: "time", Unit: "micros"},
	}})
	version := int64(0)
	put := func(doc string) error {
		version++
		c := upsert("a", version, "")
		c.Doc = []byte(doc)
		var failed *sinks.BatchError
		if err := s.Write(t.Context(), []change.Change{c}); errors.As(err, &failed) {
			return failed.Failed[0]
		} else {
			return err
		}
	}
	require.NoError(t, put(`{"d":20123,"ts":-1,"tz":"infinity","n":1.500e2,"nn":["0.001",null],"t":1500000}`))
	var row string
	require.NoError(t, s.pool.Load().QueryRow(t.Context(), "SELECT concat_ws('|', d, ts, tz, n, nn, t) FROM strict").Scan(&row))
	require.Equal(t, "2025-02-04|1969-12-31 23:59:59.999|infinity|150.000|{0.001,NULL}|00:00:01.5", row)
	for doc, want := range map[string]string{
		`{"tz":"05/06/2026"}`: `column "tz" timestamptz: a form of a date or time that is not read`,
		`{"tz":"now"}`:        `column "tz" timestamptz: a form`, `{"d":"today"}`: `column "d" date: a form`, `{"t":"allballs"}`: `column "t" time: a form`,
		`{"tz":20260701}`:                     "the column says no unit",
		`{"ts":"2026-07-01T10:00:00+02:00"}`:  `column "ts" timestamp: a time with an offset`,
		`{"t":"10:00:00+02:00"}`:              "a time with an offset",
		`{"n":1.0e-4}`:                        `column "n" numeric: a number with more digits`,
		`{"nn":[1,0.0001]}`:                   "a number with more digits",
		`{"n":1e9}`:                           "a number that does not fit",
		`{"d":"2026-02-29"}`:                  "does not exist",
		`{"tz":"2026-07-01T10:00:00+0200"}`:   "is not read",
		`{"d":"9999-12-31x","n":"SECRET 77"}`: `column "n"`,
	} {
		err := put(doc)
		require.ErrorContains(t, err, want, doc)
		require.Equal(t, sinks.Reject, classOf(err))
		require.NotContains(t, err.Error(), "SECRET")
	}
	err := newSink(t, Options{URL: address, Table: "strict", Service: service, Columns: config.Columns{{Name: "n", Path: "n", Type: "numeric", Unit: "days"}}}).Open(t.Context())
	require.ErrorContains(t, err, `column "n": has a unit`)
}

// Through PgBouncer in transaction mode a statement has any session: nothing of one is
// used, and what other clients left there has no effect.
func TestThroughAPoolerOfTransactions(t *testing.T) {
	address := servers.Postgres(t)
	pooled := servers.PgBouncer(t, address)
	for _, mode := range []Mode{Upsert, Append} {
		o := Options{URL: pooled, Table: "pooled_" + string(mode), Mode: mode, Columns: config.Columns{{Name: "n", Type: "int"}, {Name: "at", Type: "timestamptz"}}}
		if mode == Append {
			o.Retention = lifetime
		}
		s := opened(t, o)
		var others errgroup.Group
		for range 8 {
			others.Go(func() error { // two statements of one name in sessions that all share
				c, err := pgx.Connect(t.Context(), pooled)
				if err != nil {
					return err
				}
				defer c.Close(context.Background())
				for range 20 {
					if _, err := c.Exec(t.Context(), "SET TimeZone = 'Asia/Kathmandu'; SET DateStyle = 'SQL, DMY'", pgx.QueryExecModeSimpleProtocol); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for round := range int64(30) {
			batch := batchOf(20, 100*round+1)
			for i := range batch {
				batch[i].Doc = []byte(`{"n":1,"at":"2026-07-01 10:00:00"}`)
			}
			require.NoError(t, s.Write(t.Context(), batch))
		}
		require.NoError(t, others.Wait())
		var rows int
		require.NoError(t, connect(t, address).QueryRow(t.Context(), "SELECT count(*) FROM "+o.Table+" WHERE at = '2026-07-01T10:00:00Z'").Scan(&rows))
		require.Equal(t, map[Mode]int{Upsert: 20, Append: 600}[mode], rows)
		visited := 0
		require.NoError(t, s.Scan(t.Context(), "", 100, func(sinks.TargetRow) error { visited++; return nil }))
		require.Equal(t, 20, visited)
		highest, err := s.Highest(t.Context())
		require.NoError(t, err)
		require.NotZero(t, highest)
	}
	err := newSink(t, Options{URL: withParameter(t, pooled, "search_path", "public"), Table: "x", Service: service}).Open(t.Context())
	require.Equal(t, sinks.Pause, classOf(err), "%v", err)
	require.ErrorContains(t, err, "search_path")
}
