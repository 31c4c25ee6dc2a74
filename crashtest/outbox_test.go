package crashtest

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/e2e/harness"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/testservers"
	"github.com/stretchr/testify/require"
)

// outboxMain reads an outbox without any server but the application's. The
// gate forgets everything when the process dies, so the fence alone knows rows
// that come again.
const outboxMain = `
sources:
  crm:
    outbox: {url: %q, table: outbox, poll: 10ms, after: %s}
customers: [acme.yaml]
admin: {listen: "127.0.0.1:0"}
`

const outboxCustomer = `
customer: acme
projections:
  all:
    fields: {state: state}
    deliver:
      out: {file: {path: out/acme.jsonl}}
`

// outboxRows are the rows of each entity: more than one take may hand out.
const outboxRows = 19

// A process that dies at any boundary between the table and the inbox loses no
// row, repeats none in effect, keeps the order of every entity, and leaves one
// dead letter of a row that cannot be taken in.
func TestOutboxAcrossKills(t *testing.T) {
	type cell struct {
		point string
		nth   int
	}
	var cells []cell
	points := append([]string{crash.AppendHalf, crash.Appended}, crash.OutboxPoints()...)
	if *full {
		points = append(points, crash.IngestBatch, crash.GateChecked, crash.Marked)
	}
	for _, point := range points {
		// The first take has as many rows of an entity as there may be.
		cells = append(cells, cell{point, 1})
		if *full {
			cells = append(cells, cell{point, 2}, cell{point, 3})
		}
	}
	for i, c := range cells {
		t.Run(fmt.Sprintf("%s:%d", c.point, c.nth), func(t *testing.T) {
			url := testservers.Postgres(t)
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(t.Context(), `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
				entity text, payload jsonb, processed_at timestamptz)`)
			require.NoError(t, err)
			// The entities' rows in turn; a row without entity; at the end deletes.
			_, err = conn.Exec(t.Context(), `INSERT INTO outbox (entity, payload)
				SELECT e, jsonb_build_object('state', 's' || n) FROM generate_series(1, $1::int) n, unnest('{A,B,C}'::text[]) e ORDER BY n, e`, outboxRows)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `INSERT INTO outbox (entity, payload) VALUES (NULL, '{"state":"x"}'), ('A', NULL), ('B', NULL)`)
			require.NoError(t, err)

			after := []string{"delete", "mark"}[i%2]
			p := harness.NewProject(t, map[string]string{"weir.yaml": fmt.Sprintf(outboxMain, url, after), "acme.yaml": outboxCustomer})
			run := p.StartEnv([]string{fmt.Sprintf("WEIR_CRASH=%s:%d", c.point, c.nth)}, "run --until-idle")
			run.Wait()
			status := run.Cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled() && status.Signal() == syscall.SIGKILL, "it did not die there\n%s", harness.Tail(run.Log.String(), 40))
			s := p.Drain()

			var waiting int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE processed_at IS NULL").Scan(&waiting))
			require.Zero(t, waiting)
			if c.point == crash.OutboxSettling || c.point == crash.OutboxSettled {
				require.GreaterOrEqual(t, s.Stale, int64(9), "a whole take came again and was recognised")
			}
			want := make([]string, outboxRows)
			for n := range want {
				want[n] = fmt.Sprint("s", n+1)
			}
			got := p.Records("out/acme.jsonl")
			for _, entity := range []string{"A", "B"} {
				require.Equal(t, append(want[:outboxRows:outboxRows], "-"), harness.States(got, entity), entity)
			}
			require.Equal(t, want, harness.States(got, "C"))
			require.Len(t, p.Letters(), 1)
			require.Zero(t, p.Drain().Read, "nothing is left")
		})
	}
}
