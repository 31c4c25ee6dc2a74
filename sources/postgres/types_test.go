package postgres

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// The documents that docs/databases.md has for each type are those that this version reads, from
// rows and from the log.
func TestTypesOfTheDocs(t *testing.T) { typesOfTheDocs(t, servers.StartOwnPostgres(t, "").Address) }

// typeSamples are values of the types in the docs' table.
var typeSamples = map[string]string{
	"int": "7", "bigint": "7", "boolean": "true", "text": "fig", "varchar(9)": "fig", "citext": "fig",
	"an enum": "ok", "uuid": "6f1ed002-ab5b-4b3e-9d6b-3c1a3b1f2c7d", "inet": "10.0.0.1",
	"real": "0.1", "double precision": "NaN", "numeric(10,2)": "1.5", "numeric": "2.25",
	"date": "2026-02-03", "timestamp": "2026-01-02 03:04:05", "timestamptz": "2026-01-02 05:04:05+02",
	"time": "04:05:06", "timetz": "10:30:00+02", "interval": "1 day 2 hours",
	"json": `{"a": 1}`, "jsonb": `{"a":1}`, "hstore": "a=>1", "bytea": `\x01`, "int[]": "{1,2}", "text[]": "{x,y}",
}

func typesOfTheDocs(t *testing.T, server string) {
	page, err := os.ReadFile("../../docs/databases.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "| PostgreSQL | own source |")
	require.True(t, ok)
	code := regexp.MustCompile("`([^`]+)`")
	cells := func(cell string) (all []string) {
		for _, m := range code.FindAllStringSubmatch(strings.ReplaceAll(cell, "an enum", "`an enum`"), -1) {
			all = append(all, m[1])
		}
		return all
	}
	s := newShop(t, server, map[string][]string{"public.samples": {"id"}},
		"CREATE EXTENSION hstore", "CREATE EXTENSION citext", "CREATE TYPE mood AS ENUM ('ok')", "CREATE TABLE samples (id int PRIMARY KEY, n int)")
	defer s.dropSlot()
	documented := map[string]string{}
	for row := range strings.SplitSeq(table, "\n") {
		columns := strings.Split(row, " | ")
		if len(columns) < 3 {
			if len(documented) > 0 {
				break
			}
			continue
		}
		types, values := cells(columns[0]), cells(columns[1])
		for i, name := range types {
			sample, ok := typeSamples[name]
			require.True(t, ok, "no sample of %s", name)
			s.exec(`ALTER TABLE samples ADD COLUMN "` + name + `" ` + strings.ReplaceAll(name, "an enum", "mood") + ` DEFAULT '` + sample + `'`)
			documented[name] = values[min(i, len(values)-1)]
		}
	}
	require.Len(t, documented, len(typeSamples), "the docs have each sample")
	s.exec("INSERT INTO samples (id, n) VALUES (1, 0)")
	r := s.start()
	defer r.stop()
	s.drain(r)
	s.exec("INSERT INTO samples (id, n) VALUES (2, 0)")
	s.drain(r)
	for id, text := range s.inbox.docs(t, "samples") {
		var doc map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &doc))
		for name, want := range documented {
			require.JSONEq(t, want, string(doc[name]), "%s of row %s", name, id)
			if doc[name][0] != '{' { // compact changes an object's spaces
				require.Equal(t, want, string(doc[name]), "%s of row %s", name, id)
			}
		}
	}
}
