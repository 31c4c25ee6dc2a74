package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// A row that a trigger leaves out without an error is no success. A repetition and an older
// version, of which the table also stores nothing, are one.
func TestSwallowedRowsFail(t *testing.T) {
	for _, mode := range []Mode{Upsert, Append} {
		address := servers.Postgres(t)
		s := opened(t, Options{URL: address, Table: "rows", Mode: mode})
		before := []change.Change{upsert("a", 1, "x"), upsert("b", 1, "x")}
		require.NoError(t, s.Write(t.Context(), before))
		execute(t, address, `CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.entity IN ('b', 'c') THEN RETURN NULL; END IF; RETURN NEW; END $$;
			CREATE TRIGGER leave_out BEFORE INSERT OR UPDATE ON rows FOR EACH ROW EXECUTE FUNCTION leave_out()`)
		changes := []change.Change{upsert("a", 2, "x"), upsert("b", 2, "x"), upsert("c", 2, "x"), upsert("d", 2, "x"), upsert("c", 3, "x")}
		for range 2 {
			var failed *sinks.BatchError
			require.ErrorAs(t, s.Write(t.Context(), changes), &failed)
			require.Len(t, failed.Failed, 3)
			for _, i := range []int{1, 2, 4} {
				e := sinks.Classify(failed.Failed[i])
				require.ErrorIs(t, e, errSwallowed)
				require.Equal(t, sinks.Reject, e.Class)
				require.NotEmpty(t, e.Hint)
			}
		}
		require.NoError(t, s.Write(t.Context(), append(before, changes[0], changes[3])), "they are there")

		var many []change.Change
		for i := range int64(30) {
			many = append(many, upsert("b", 10+i, "x"))
		}
		e := sinks.Classify(s.Write(t.Context(), many))
		require.Equal(t, sinks.Pause, e.Class, "%v", e)
		require.Contains(t, e.Hint, "leaves every row out")
	}
}

// A rule that does nothing instead leaves rows out; a collation that is not deterministic would
// let one entity replace another, and is found before anything is written.
func TestTablesThatWouldMergeOrLoseRows(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "ruled"})
	execute(t, address, "CREATE RULE nothing AS ON INSERT TO ruled DO INSTEAD NOTHING")
	var failed *sinks.BatchError
	require.ErrorAs(t, s.Write(t.Context(), []change.Change{upsert("a", 1, "x")}), &failed)
	require.ErrorIs(t, failed.Failed[0], errSwallowed)

	execute(t, address, "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
	const columns = "service text, entity text %s, version bigint, is_deleted boolean, key text %s, changed_at timestamptz, synced_at timestamptz, doc jsonb"
	for i, tc := range []struct {
		mode        Mode
		entity, key string
		index       string
		want        string
	}{
		{Upsert, "COLLATE caseless", "", "service, entity", `column "entity": its collation "caseless"`},
		{Append, "", "COLLATE caseless", "key, changed_at", `column "key": its collation "caseless"`},
		{Upsert, "", "", "service, entity COLLATE caseless", "no primary key or unique index"},
		{Upsert, "", "", "service, entity", ""},
	} {
		table := fmt.Sprint("collated_", i)
		seq := map[Mode]string{Append: ", seq bigserial"}[tc.mode]
		execute(t, address, fmt.Sprintf("CREATE TABLE %s ("+columns+"%s); CREATE UNIQUE INDEX ON %[1]s (%[5]s)", table, tc.entity, tc.key, seq, tc.index))
		err := newSink(t, Options{URL: address, Table: table, Service: service, Mode: tc.mode}).Open(t.Context())
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
	}
}
