package outbox_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources/outbox"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// BenchmarkRead reads rows whose events are durable at once, so it measures
// the table: rows of an entity each, and all of one entity, which has no more
// than eight in hand at a time.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name     string
		entities int
	}{{"many", 1 << 30}, {"hundred", 100}, {"one", 1}} {
		b.Run(c.name, func(b *testing.B) {
			url := servers.Postgres(b)
			conn, err := pgx.Connect(b.Context(), url)
			require.NoError(b, err)
			_, err = conn.Exec(b.Context(), fmt.Sprintf(`CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, entity text NOT NULL, payload jsonb);
				CREATE INDEX ON outbox (entity, id);
				INSERT INTO outbox (entity, payload) SELECT 'E' || n %% %d, '{"state": "packed"}' FROM generate_series(1, %d) n; ANALYZE outbox`, c.entities, b.N))
			require.NoError(b, err)
			require.NoError(b, conn.Close(b.Context()))
			source, err := outbox.New(outbox.Options{
				Name: "crm", URL: url, Table: "outbox", Columns: outbox.Columns{ID: "id", Entity: "entity", Payload: "payload"}, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(b, err)
			messages, err := source.Subscribe(b.Context(), "outbox:crm")
			require.NoError(b, err)
			b.ResetTimer()
			for n := 0; n < b.N; {
				m := <-messages
				f, _ := transport.FrameOf(m)
				n += len(f.Records)
				m.Ack()
			}
			b.StopTimer()
			require.NoError(b, source.Close())
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
