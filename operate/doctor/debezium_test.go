package doctor

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// The table of a Debezium topic, where a database of the configuration has it: what its replica
// identity leaves open, and a row_image that is not true.
func TestReplicaIdentityOfATableOfDebezium(t *testing.T) {
	short(t)
	address := servers.Postgres(t)
	brokers, prefix := servers.Kafka(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	var schema string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	exec := func(sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE TABLE outbox (id bigserial PRIMARY KEY, entity text, payload jsonb, created_at timestamptz DEFAULT now())")
	exec("CREATE TABLE items (id int PRIMARY KEY, order_id int NOT NULL, sku text NOT NULL, totals numeric, scores float8[])")
	ask := func(keys string) (operate.Level, string) {
		c := configuredSources(t, "  items: {kafka: {brokers: [\""+strings.Join(brokers, `", "`)+"\"], topic: "+prefix+"shop."+schema+".items}, "+keys+"}\n"+
			"  box: {outbox: {url: \""+address+"\", table: outbox}}\n", "")
		e := &examination{cfg: c}
		e.debezium(t.Context(), map[string]bool{"source box": true})
		if len(e.findings) == 0 {
			return operate.LevelOK, ""
		}
		return said(t, e.findings, "source items")
	}
	for _, c := range []struct {
		sql, keys string
		level     operate.Level
		text      string
	}{
		{"", "format: debezium, entity: id", operate.LevelDegraded, "a large value of totals, scores as null"},
		{"", "format: debezium, entity: id, unchanged_as_null: [totals]", operate.LevelDegraded, "a large value of scores as null"},
		{"", "format: debezium, entity: id, unchanged_as_null: [scores, totals]", operate.LevelOK, ""},
		{"", "entity: payload.id, payload: payload, operation: payload.__deleted", operate.LevelDegraded, "a large value of totals, scores as null"},
		{"", "format: debezium, entity: order_id", operate.LevelDegraded, "does not log the entity id of a deleted row"},
		{"", "format: debezium, entity: order_id, row_image: full", operate.LevelDown, "does not log whole rows"},
		{"ALTER TABLE items REPLICA IDENTITY FULL", "format: debezium, entity: order_id", operate.LevelDegraded, "say row_image: full"},
		{"", "format: debezium, entity: order_id, row_image: full", operate.LevelOK, ""},
		{"", "format: debezium, entity: id", operate.LevelOK, ""},
		{"CREATE UNIQUE INDEX items_sku ON items (sku); ALTER TABLE items REPLICA IDENTITY USING INDEX items_sku", "format: debezium, entity: id", operate.LevelDegraded, "REPLICA IDENTITY FULL, then row_image: full"},
	} {
		if c.sql != "" {
			exec(c.sql)
		}
		level, text := ask(c.keys)
		require.Equal(t, c.level, level, "%s: %s", c.keys, text)
		require.Contains(t, text, c.text, c.keys)
	}
}
