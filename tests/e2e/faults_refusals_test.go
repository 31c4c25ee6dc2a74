package e2e

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I9: one row of a batch of a thousand that the store refuses is found by
// bisection and is a dead letter; the other 999 flow, each once, and the entity
// is as any other once the store takes it.
func TestPoisonRowInABatchOfAThousand(t *testing.T) {
	t.Parallel()
	const entities = 1000
	url := servers.Postgres(t)
	p := harness.SimpleOnBrokers(t, "inbox: {partitions: 1}", fmt.Sprintf("store: {postgres: {url: %q}}\n", url), map[string]string{"acme": harness.FileSink("acme")})
	p.Start("migrate").Ok()
	// Ingest accepts no id that PostgreSQL is known to refuse, so a constraint replaces one.
	harness.Exec(t, url, "ALTER TABLE entities ADD CONSTRAINT poison CHECK (id <> 'E617')")
	p.Append("events.jsonl", harness.Many(entities, 0, 1))
	p.Start("run --role ingest --until-idle").Ok() // all in the inbox before the first is decided
	p.Drain()
	got := p.Records("out/acme.jsonl")
	require.Len(t, got, entities-1)
	require.Empty(t, harness.States(got, "E617"))
	letters := p.Letters()
	require.Len(t, letters, 1)
	l := p.Letter(letters[0].ID)
	require.Equal(t, "decide", l.Stage)
	require.Equal(t, "poison", l.Code)
	require.Equal(t, "E617", l.Entity)
	require.Contains(t, *l.Payload, `"E617"`)
	require.EqualValues(t, entities, harness.Number(t, url, "SELECT sum(next_offset) FROM watermarks"), "everything is decided")

	harness.Exec(t, url, "ALTER TABLE entities DROP CONSTRAINT poison")
	p.Append("events.jsonl", harness.Event(9999, "E617", "healed"))
	p.Drain()
	require.Equal(t, []string{"healed"}, harness.States(p.Records("out/acme.jsonl"), "E617"))
	require.Len(t, p.Records("out/acme.jsonl"), entities)
	require.Len(t, p.Letters(), 1)
}
