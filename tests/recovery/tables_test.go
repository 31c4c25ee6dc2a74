package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

const tablesMain = `
sources:
  shop:
    postgres:
      url: %q
      tables:
        public.orders: {entity: id}
        public.buyers: {entity: id, mount: buyer}
        public.parcels: {entity: id, mount: parcel}
        public.bills: {entity: id, mount: bill}
        public.notes: {entity: id, mount: note}
merge: {required: [shop_orders]}
customers: ["all.yaml", "few.yaml"]
admin: {listen: "off"}
`

const tablesCustomer = `
customer: %s
projections:
  view:
    fields: {%s}
    deliver: {log: {file: {path: out/%[1]s.jsonl}}}
`

// shopTables are the tables and the member of each in the view of the customer "all"; "few" sees
// the first two.
var shopTables = [][2]string{{"orders", "v"}, {"buyers", "buyer.v"}, {"parcels", "parcel.v"}, {"bills", "bill.v"}, {"notes", "note.v"}}

// I1, I2: rows of five tables, and changes of them, reach customers while the process and
// PostgreSQL are killed.
func TestTablesUnderKills(t *testing.T) { tablesUnderKills(t, 1000, 120) }

// tablesUnderKills runs with so many rows in each table and so many transactions.
func tablesUnderKills(t *testing.T, rows, transactions int) {
	server := servers.StartOwn(t, "postgres")
	u, err := url.Parse(server.Address)
	require.NoError(t, err)
	members := func(tables [][2]string) string {
		var all []string
		for _, table := range tables {
			all = append(all, fmt.Sprintf("%s: %s", table[0], table[1]))
		}
		return strings.Join(all, ", ")
	}
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(tablesMain, u.String()), "all.yaml": fmt.Sprintf(tablesCustomer, "all", members(shopTables)),
		"few.yaml": fmt.Sprintf(tablesCustomer, "few", members(shopTables[:2])),
	})
	exec := func(sql string) error {
		conn, err := pgx.Connect(t.Context(), server.Address)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(t.Context(), sql)
		return err
	}
	for _, table := range shopTables {
		require.NoError(t, exec(fmt.Sprintf("CREATE TABLE %[1]s (id int PRIMARY KEY, v int, at timestamptz DEFAULT now()); INSERT INTO %[1]s SELECT n, 0 FROM generate_series(1, %[2]d) n; ANALYZE %[1]s", table[0], rows)))
	}
	pr := p.Start("run")
	kill := func() {
		pr.Kill()
		pr = p.Start("run")
	}
	pr.Says("event=source.snapshot_began")
	kill() // amid the rows
	r := rand.New(rand.NewPCG(3, uint64(rows)))
	for n := range transactions {
		var sql []string
		for range 1 + r.IntN(4) {
			table, id := shopTables[r.IntN(len(shopTables))][0], 1+r.IntN(rows+rows/10)
			switch roll := r.IntN(10); {
			case roll == 0:
				sql = append(sql, fmt.Sprintf("DELETE FROM %s WHERE id = %d", table, id))
			case roll == 1:
				sql = append(sql, fmt.Sprintf("UPDATE %s SET at = now() WHERE id %% 50 = %d", table, id%50)) // nobody sees it
			case roll == 2:
				sql = append(sql, fmt.Sprintf("UPDATE %s SET v = v + 1 WHERE id %% 200 = %d", table, id%200))
			default:
				sql = append(sql, fmt.Sprintf("INSERT INTO %[1]s VALUES (%[2]d, %[3]d) ON CONFLICT (id) DO UPDATE SET v = excluded.v", table, id, r.IntN(5)))
			}
		}
		if n == transactions/2 {
			sql = append(sql, fmt.Sprintf("TRUNCATE notes; INSERT INTO notes SELECT n, 7 FROM generate_series(1, %d) n", rows/2))
		}
		require.NoError(t, exec("BEGIN; "+strings.Join(sql, "; ")+"; COMMIT"))
		switch n * 12 / transactions {
		case (n - 1) * 12 / transactions: // not the first of a twelfth
		case 3, 8:
			server.Kill()
			server.Start()
		case 5:
			pr.Kill()
			server.Kill()
			server.Start()
			pr = p.Start("run")
		default:
			kill()
		}
	}
	pr.Kill()
	p.Drain()
	requireRows(t, server.Address, p, "all", shopTables)
	requireRows(t, server.Address, p, "few", shopTables[:2])
}

// requireRows compares the log of a customer with the tables: no change is there twice, none came
// behind a newer one or repeats the one before, and the newest are the rows.
func requireRows(t *testing.T, server string, p harness.Project, customer string, tables [][2]string) {
	newest := map[string]oracle.Record{}
	for _, r := range p.Records("out/" + customer + ".jsonl") {
		last, known := newest[r.Entity]
		require.Greater(t, r.Version, last.Version, "%s, entity %s: twice or behind a newer one", customer, r.Entity)
		require.False(t, known && r.Op == last.Op && string(r.Doc) == string(last.Doc), "%s, entity %s: %s again", customer, r.Entity, r.Doc)
		newest[r.Entity] = r
	}
	conn, err := pgx.Connect(t.Context(), server)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	want := map[string]map[string]int{}
	for i, table := range tables {
		found, err := conn.Query(t.Context(), "SELECT id::text, v FROM "+table[0])
		require.NoError(t, err)
		var id string
		var v int
		_, err = pgx.ForEachRow(found, []any{&id, &v}, func() error {
			if i == 0 {
				want[id] = map[string]int{}
			}
			if want[id] != nil {
				want[id][table[0]] = v
			}
			return nil
		})
		require.NoError(t, err)
	}
	got := map[string]map[string]int{}
	for id, r := range newest {
		if r.Op == "retract" {
			continue
		}
		var doc map[string]*int
		require.NoError(t, json.Unmarshal(r.Doc, &doc))
		got[id] = map[string]int{}
		for name, v := range doc {
			if v != nil {
				got[id][name] = *v
			}
		}
	}
	require.Len(t, got, len(want), customer)
	for id := range want {
		require.Equal(t, want[id], got[id], "%s, entity %s", customer, id)
	}
}

// A TRUNCATE of a table is a deletion of all its entities, which the guard holds: at most 50 leave each
// customer. A release sends the others, a discard leaves them at the target until they change.
func TestTruncateIsHeldByTheGuard(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	customer := "customer: %s\nprojections: {view: {fields: {v: v}, deliver: {log: {file: {path: out/%[1]s.jsonl}}}}}\n"
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf("sources: {shop: {postgres: {url: %q, tables: {public.stock: {entity: id}}}}}\ncustomers: [sent.yaml, kept.yaml]\nadmin: {listen: \"127.0.0.1:0\"}\n", server.Address),
		"sent.yaml": fmt.Sprintf(customer, "sent"), "kept.yaml": fmt.Sprintf(customer, "kept"),
	})
	conn, err := pgx.Connect(t.Context(), server.Address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	retracted := func(customer string) (n int) {
		for _, r := range p.RecordsUpTo("out/"+customer+".jsonl", true) {
			n += strings.Count(r.Op, "retract")
		}
		return n
	}
	const rows, most = 120, 50
	exec("CREATE TABLE stock (id int PRIMARY KEY, v int); INSERT INTO stock SELECT n, n FROM generate_series(1, " + strconv.Itoa(rows) + ") n")
	p.Drain()
	p.Age()
	pr := p.Start("run")
	pr.Ready(200) // else a command may have the state file first
	exec("TRUNCATE stock")
	for customer, do := range map[string]string{"sent": "release", "kept": "discard"} {
		service := customer + "/view@log"
		harness.Eventually(t, service+" is held", func() error {
			return harness.Want(p.Start("guard show", service).Wait(), 0)
		})
		require.Equal(t, most, retracted(customer), customer)
		require.Contains(t, p.Start("guard show", service).Ok(), "retracted:")
		p.Start("guard "+do, service, "--reason", "test").Ok()
	}
	harness.Eventually(t, "the released retractions", func() error { return harness.Want(retracted("sent"), rows) })
	exec("INSERT INTO stock SELECT n, -n FROM generate_series(1, " + strconv.Itoa(rows) + ") n")
	for customer, gone := range map[string]int{"sent": rows, "kept": most} {
		harness.Eventually(t, customer+" has the new rows", func() error {
			return harness.Want(len(oracle.Newest(p.RecordsUpTo("out/"+customer+".jsonl", true))), rows)
		})
		harness.Eventually(t, customer+" has them all", func() error {
			return harness.Want(len(p.RecordsUpTo("out/"+customer+".jsonl", true)), rows+gone+rows)
		})
		require.Equal(t, gone, retracted(customer))
	}
	pr.Terminate()
	pr.Ok()
}
