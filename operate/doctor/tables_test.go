package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// Paths that no table has, and tables whose ids are of different things, are told.
func TestMappingsThatNeverMeet(t *testing.T) {
	url := servers.Postgres(t)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(t.Context())
	_, err = db.Exec(t.Context(), `CREATE TABLE customers (id int PRIMARY KEY, city text);
		CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, state text);
		CREATE TABLE shipments (parcel text PRIMARY KEY, carrier text);
		CREATE TABLE notes ("order" text, line text, PRIMARY KEY ("order", line));
		INSERT INTO customers VALUES (1, 'Oslo'); INSERT INTO orders SELECT i, 1, 'new' FROM generate_series(1, 3000) i;
		INSERT INTO shipments VALUES ('p1', 'post'); INSERT INTO notes VALUES ('1', 'a/b')`)
	require.NoError(t, err)
	var schema string
	require.NoError(t, db.QueryRow(t.Context(), "SELECT current_schema").Scan(&schema))
	examine := func(tables, fields string) (lines []string) {
		tables = strings.ReplaceAll(tables, "public.", schema+".")
		dir := t.TempDir()
		write := func(name, text string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		write("weir.yaml", "sources: {shop: {postgres: {url: "+strconv.Quote(url)+", insecure: true, slot: weir_meets, tables: {"+tables+"}}}}\ncustomers: [acme.yaml]\n")
		write("acme.yaml", "customer: acme\nprojections:\n  p:\n    fields:\n"+fields+"    deliver: {out: {file: {path: out/a.jsonl}}}\n")
		c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
		require.NoError(t, err)
		e := &examination{cfg: c}
		answers := map[string]bool{}
		for _, s := range c.Sources {
			answers["source "+s.Name] = true
		}
		e.mappings(t.Context(), answers)
		for _, f := range e.findings {
			require.Equal(t, operate.LevelDegraded, f.Level)
			line := f.What + ": " + strings.TrimPrefix(f.Why, dir+"/") + " | " + f.Do
			lines = append(lines, strings.ReplaceAll(strings.ReplaceAll(line, schema+".", "public."), schema+"_", ""))
		}
		return lines
	}
	require.Equal(t, []string{
		"projection acme/p: acme.yaml:5:7: fields.a reads stat, and no table has such a column: it stays empty | a column of public.orders: id, customer, state",
		"projection acme/p: acme.yaml:6:7: fields.b reads buyer.cty, and no table has such a column: it stays empty | a column of public.customers: id, city",
	}, examine("public.orders: {entity: id}, public.customers: {entity: id, mount: buyer}", "      a: stat\n      b: buyer.cty\n      c: state\n"))
	require.Equal(t, []string{
		"source shop_orders: its entity is id, and customer names public.customers: rows of both with the same number become one entity, whether they belong together or not | " + meetDo,
	}, examine("public.orders: {entity: id}, public.customers: {entity: id, mount: buyer}", "      a: state\n      b: buyer.city\n"))
	require.Equal(t, []string{
		"source shop_shipments: of up to 1000 ids (parcel) none is one of source shop_orders (id): their rows never become one entity | " + meetDo,
	}, examine("public.orders: {entity: id}, public.shipments: {entity: parcel, mount: shipment}", "      a: state\n      b: shipment.carrier\n"))
	require.Empty(t, examine("public.orders: {entity: id}, public.shipments: {entity: parcel, mount: shipment}", "      a: state\n"), "no projection shows both")
	require.Empty(t, examine("public.orders: {entity: id}, public.notes: {entity: order, mount: note}", "      a: state\n      b: note.line\n"))
	require.NotEmpty(t, examine("public.orders: {entity: id}, public.notes: {entity: [order, line], mount: note}", "      a: state\n      b: note.line\n"))
}
