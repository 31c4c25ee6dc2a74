package recovery

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// A TRUNCATE of a table is a deletion of all its entities, which the guard holds: at most 50 leave each
// customer. A release sends the others, a discard leaves them at the target until they change.
func TestTruncateIsHeldByTheGuard(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	customer := "customer: %s\nprojections: {view: {fields: {v: v}, deliver: {log: {file: {path: out/%[1]s.jsonl}}}}}\n"
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf("sources: {shop: {postgres: {url: %q, tables: {public.stock: {entity: id}}}}}\ncustomers: [sent.yaml, kept.yaml]\nadmin: {listen: \"127.0.0.1:0\"}\n", server.Address),
		"sent.yaml": fmt.Sprintf(customer, "sent"), "kept.yaml": fmt.Sprintf(customer, "kept"),
	})
	retracted := func(customer string) (n int) {
		for _, r := range p.RecordsUpTo("out/"+customer+".jsonl", true) {
			n += strings.Count(r.Op, "retract")
		}
		return n
	}
	const rows, most = 120, 50
	harness.Exec(t, server.Address, "CREATE TABLE stock (id int PRIMARY KEY, v int); INSERT INTO stock SELECT n, n FROM generate_series(1, "+strconv.Itoa(rows)+") n")
	p.Drain()
	p.Age()
	pr := p.Start("run")
	pr.Ready(200) // else a command may have the state file first
	harness.Exec(t, server.Address, "TRUNCATE stock")
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
	harness.Exec(t, server.Address, "INSERT INTO stock SELECT n, -n FROM generate_series(1, "+strconv.Itoa(rows)+") n")
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
