package postgres

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// Every value has one JSON form, which loses nothing.
func TestValues(t *testing.T) {
	cfg, err := connConfig(servers.Postgres(t), "values")
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{
		"CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE DOMAIN cents AS numeric(20, 2)", "CREATE DOMAIN price AS cents CHECK (value > 0)",
		"CREATE TYPE pair AS (a int, b text)", "CREATE EXTENSION IF NOT EXISTS hstore",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	types := types{}
	for expression, want := range map[string]string{
		"1::smallint":                 `1`,
		"9223372036854775807::bigint": `9223372036854775807`,
		"12345678901234567890.12345678901234500::numeric": `12345678901234567890.12345678901234500`,
		"'NaN'::numeric":                               `"NaN"`,
		"'-Infinity'::float8":                          `"-Infinity"`,
		"0.1::float8":                                  `0.1`,
		"1e300::float8":                                `1e+300`,
		"0.3::real":                                    `0.3`,
		"true":                                         `true`,
		"false":                                        `false`,
		`E'a"b\\c\nd\u0001\u00e4\u2028'::text`:         `"a\"b\\c\nd\u0001ä` + "\u2028" + `"`,
		`'{"b": 1.50, "a": [null]}'::json`:             `{"b": 1.50, "a": [null]}`,
		`'{"b":1.50}'::jsonb`:                          `{"b": 1.50}`,
		"'2026-07-01 10:30:00.5'::timestamp":           `"2026-07-01T10:30:00.5"`,
		"'2026-07-01 10:30:00.5+02'::timestamptz":      `"2026-07-01T08:30:00.5Z"`,
		"'infinity'::timestamptz":                      `"infinity"`,
		"'0044-03-15 12:00:00 BC'::timestamp":          `"0044-03-15 12:00:00 BC"`,
		"'12026-07-01 10:00:00'::timestamp":            `"12026-07-01 10:00:00"`,
		"'2026-07-01'::date":                           `"2026-07-01"`,
		"'10:30:00.5'::time":                           `"10:30:00.5"`,
		"'10:30:00+02'::timetz":                        `"10:30:00+02"`,
		"'1 day 2 hours'::interval":                    `"P1DT2H"`,
		`'\x00ff'::bytea`:                              `"\\x00ff"`,
		"'11111111-2222-3333-4444-555555555555'::uuid": `"11111111-2222-3333-4444-555555555555"`,
		"'ok'::mood":                                   `"ok"`,
		"1.5::price":                                   `1.50`,
		"ROW(1, 'x')::pair":                            `"(1,x)"`,
		"'10.0.0.1/8'::inet":                           `"10.0.0.1/8"`,
		"'[1,5)'::int4range":                           `"[1,5)"`,
		"ARRAY[1, NULL, 3]":                            `[1,null,3]`,
		"ARRAY[]::int[]":                               `[]`,
		"'[0:1]={4,5}'::int[]":                         `[4,5]`,
		"ARRAY[[1,2],[3,4]]":                           `[[1,2],[3,4]]`,
		"ARRAY['a', 'NULL', NULL, '', 'x,y', '{z}', E'q\"\\\\']": `["a","NULL",null,"","x,y","{z}","q\"\\"]`,
		"ARRAY[true, false]":                      `[true,false]`,
		"ARRAY[1.50::price]":                      `[1.50]`,
		`ARRAY['{"a":"b"}'::jsonb]`:               `[{"a": "b"}]`,
		"ARRAY['2026-07-01 10:30:00'::timestamp]": `["2026-07-01T10:30:00"]`,
		"ARRAY['(1,1),(0,0)'::box]":               `["(1,1),(0,0)"]`,
		`'a=>1, "b c"=>NULL, d=>"x\"y"'::hstore`:  `{"a":"1","b c":null,"d":"x\"y"}`,
		"''::hstore":                              `{}`,
		"ARRAY['a=>1'::hstore]":                   `[{"a":"1"}]`,
		"'1 2'::int2vector":                       `"1 2"`,
	} {
		result := conn.PgConn().ExecParams(t.Context(), "SELECT "+expression, nil, nil, nil, nil)
		require.True(t, result.NextRow(), expression)
		text := append([]byte{}, result.Values()[0]...)
		oid := result.FieldDescriptions()[0].DataTypeOID
		_, err := result.Close()
		require.NoError(t, err)
		typ, err := types.of(t.Context(), conn, []uint32{oid})
		require.NoError(t, err)
		got, err := typ[0].appendValue(nil, text)
		require.NoError(t, err, expression)
		require.Equal(t, want, string(got), expression)
		require.True(t, json.Valid(got), expression)
	}
}

// Malformed texts are errors, never a crash.
func FuzzValues(f *testing.F) {
	for _, text := range []string{`{1,{2}`, `{"a\`, `[0:1]=`, `{}x`, `{,}`, `"a"=>`, `"a"=>"b",`, `{{{{{{{1}}}}}}}`, ``, `{`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, typ := range []valueType{{form: formArray, element: formText, delimiter: ','}, {form: formHstore}, {form: formTimestampTZ}, {form: formArray, element: formHstore, delimiter: ','}} {
			got, err := typ.appendValue(nil, text)
			require.True(t, err != nil || json.Valid(got), "%q: %s", text, got)
		}
	})
}

// Columns of an entity id are told apart, also with separators inside them.
func TestEntityIDs(t *testing.T) {
	s := newShape([]string{"a", "b"}, make([]valueType, 2), []string{"a", "b"})
	seen := map[string]string{}
	parts := []string{"", "/", `\`, "a", "a/", `a\`, `\/`, "/a"}
	for _, a := range parts {
		for _, b := range parts {
			id := s.id([]value{{text: []byte(a)}, {text: []byte(b)}})
			require.NotContains(t, seen, id, "%q %q", a, b)
			seen[id] = a + " " + b
		}
	}
	require.Empty(t, s.id([]value{{text: []byte("a")}, {}}), "null")
	require.Empty(t, newShape([]string{"a"}, make([]valueType, 1), []string{"gone"}).id([]value{{text: []byte("a")}}))
}

// Each position belongs to the timeline that wrote it.
func TestTimelines(t *testing.T) {
	lines, err := parseTimelines(4, "1\t0/3000000\tno recovery target\n\n2\t0/5000060\tx\n3\t1/0\tx\n")
	require.NoError(t, err)
	lines.prefix = "p"
	for lsn, want := range map[int64]string{0: "p-1", 0x2ffffff: "p-1", 0x3000000: "p-2", 0x500005f: "p-2", 0x5000060: "p-3", 1<<32 - 1: "p-3", 1 << 32: "p-4"} {
		require.Equal(t, want, lines.stream(lsn).id, "%X", lsn)
	}
	next := lines
	next.era = mark{}.next(1, 0).Era
	for _, newer := range []stream{lines.stream(1 << 32), next.stream(0)} {
		order, alike := change.CompareSequence(newer.sequence, lines.stream(0).sequence)
		require.True(t, alike && order > 0, newer)
	}
	require.True(t, lines.holds(1, 0x3000000))
	require.False(t, lines.holds(1, 0x3000001), "commits behind the fork are lost")
	require.True(t, lines.holds(4, 1<<40))
	require.False(t, lines.holds(7, 1), "a timeline of another history")
	_, err = parseTimelines(2, "rubbish\n")
	require.ErrorContains(t, err, "history")
	require.True(t, strings.HasPrefix(mark{Confirmed: 5}.gap(slotState{confirmed: 6}, lines, 100), "the slot begins after"))
	require.Contains(t, mark{Confirmed: 101, Timeline: 4}.gap(slotState{confirmed: 50}, lines, 100), "restored")
	require.Contains(t, mark{Confirmed: 0x3000001, Timeline: 1}.gap(slotState{}, lines, 1<<40), "lost commits")
	require.Contains(t, mark{Confirmed: 60, Rows: 101, Timeline: 4}.gap(slotState{confirmed: 50}, lines, 100), "restored", "rows were read of what is lost")
	require.Contains(t, mark{Rows: 0x3000001, Timeline: 1}.gap(slotState{}, lines, 1<<40), "lost commits")
	require.Contains(t, mark{Confirmed: 60, Diverged: true, Timeline: 4}.gap(slotState{confirmed: 50}, lines, 100), "restored")
	require.Empty(t, mark{Confirmed: 60, Timeline: 1}.gap(slotState{confirmed: 50}, lines, 100))
}

// A slot that standbys do not get has an advice.
func TestSlotWithoutFailover(t *testing.T) {
	require.NoError(t, slotState{failover: true}.advice("weir_shop"))
	var advice *reach.Advice
	require.ErrorAs(t, slotState{}.advice("weir_shop"), &advice)
	require.Contains(t, advice.Do, `ALTER_REPLICATION_SLOT "weir_shop" (FAILOVER true)`)
}

// A TRUNCATE that waits for decisions is reported, as long as it waits.
func TestWaitForDecisionsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(Options{Entities: map[string][]string{"orders": {"id"}}, Logger: slog.New(slog.DiscardHandler)}, nil)
		r.joined = 1
		source := r.Source("orders")
		decided := source.awaitsDecisions(t.Context())
		time.Sleep(undecidedAfter - 1)
		require.NoError(t, source.Failing())
		time.Sleep(1)
		synctest.Wait()
		require.ErrorIs(t, source.Failing(), errUndecided)
		decided()
		require.NoError(t, source.Failing())
	})
}
