package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/sources/internal/setup"
)

// SetupError is a fault that no waiting mends: its text says the remedy.
type SetupError = setup.Error

const kind = "postgres"

func faultf(format string, args ...any) error { return setup.Errorf(kind, format, args...) }

func classify(err error) error { return setup.Classify(kind, err) }

// slotState is a replication slot.
type slotState struct {
	exists    bool
	plugin    string
	database  string
	failover  bool   // standbys get a copy of it; of a server before PostgreSQL 17 always true
	lost      string // why the server invalidated it; empty if it did not
	confirmed int64  // the position from which it sends
	retained  int64  // bytes of the log that it keeps
}

// bytesOf is SQL for a position as a number.
func bytesOf(lsn string) string { return "(" + lsn + " - '0/0'::pg_lsn)::bigint" }

// currentPosition is SQL for the end of the log, on a standby also.
const currentPosition = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"

// readSlot describes a slot.
func readSlot(ctx context.Context, db querier, version int, name string) (s slotState, err error) {
	reason, failover := "''", "true"
	if version >= 160000 {
		reason = "CASE WHEN conflicting THEN 'it conflicted with recovery' ELSE '' END"
	}
	if version >= 170000 {
		reason, failover = "coalesce(invalidation_reason, '')", "failover"
	}
	err = db.QueryRow(ctx, `SELECT coalesce(plugin, ''), coalesce(database, ''),
		CASE WHEN wal_status = 'lost' THEN 'the log that it needs was removed (max_slot_wal_keep_size)' ELSE `+reason+` END,
		coalesce(`+bytesOf("confirmed_flush_lsn")+`, 0), coalesce(greatest(`+bytesOf(currentPosition)+` - `+bytesOf("restart_lsn")+`, 0), 0), `+failover+`
		FROM pg_replication_slots WHERE slot_name = $1`, name).Scan(&s.plugin, &s.database, &s.lost, &s.confirmed, &s.retained, &s.failover)
	if errors.Is(err, pgx.ErrNoRows) {
		return slotState{}, nil
	}
	s.exists = err == nil
	return s, err
}

// check returns a SetupError if the slot cannot be read; known says that Weir has read it before.
func (s slotState) check(name, database string, known bool) error {
	switch {
	case !s.exists && known:
		return faultf("replication slot %q does not exist any more: it was dropped, or the database is a standby that was promoted and had no copy of it "+
			"(PostgreSQL 17 copies slots with failover = true). weir source prepare makes a new one, and the rows are read again", name)
	case !s.exists:
		return faultf("replication slot %q does not exist: weir source prepare makes it", name)
	case s.lost != "":
		return faultf("replication slot %q was invalidated: %s. Changes are lost. weir source prepare --again makes a new one, and the rows are read again", name, s.lost)
	case s.plugin != "pgoutput":
		return faultf("replication slot %q is of the plugin %s, not pgoutput: name another slot", name, s.plugin)
	case s.database != database:
		return faultf("replication slot %q is of the database %s: name another slot", name, s.database)
	}
	return nil
}

// advice returns a *reach.Advice if the slot would not outlive a fail-over; nil if it would.
func (s slotState) advice(name string) error {
	if s.failover {
		return nil
	}
	return &reach.Advice{
		Why: fmt.Sprintf("replication slot %q is not copied to standbys: after a fail-over all rows are read again", name),
		Do: fmt.Sprintf("if there is a standby: stop Weir, ALTER_REPLICATION_SLOT %s (FAILOVER true) on a connection with replication=database, "+
			"and sync_replication_slots = on at the standby", quote(name)),
	}
}

// sqlMayMake reports whether the user may make a publication, or owns it, and owns a table.
const sqlMayMake = `SELECT pg_has_role(c.relowner, 'USAGE') AND coalesce((SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = $2),
	has_database_privilege(current_database(), 'CREATE')) FROM pg_class c WHERE c.oid = $1::text::regclass`

// notSetUp is what to say of a slot that does not exist: a *reach.Advice where a reader makes
// it, with the publication.
func notSetUp(ctx context.Context, db querier, publication, table, role string) error {
	var may bool
	if err := db.QueryRow(ctx, sqlMayMake, quoteTable(table), publication).Scan(&may); err != nil {
		return classify(err)
	}
	if !may {
		return faultf("not set up yet, and role %q may not make the publication of table %s: weir source prepare --sql prints the statements for an administrator", role, table)
	}
	return &reach.Advice{Expected: true, Why: "not set up yet: weir run makes the publication and the slot at its first start (later, if the slot was dropped: weir source prepare)"}
}

// tableState is a table and its publication.
type tableState struct {
	exists    bool
	columns   []string // that are published, in their order
	types     []uint32
	key       []string // the primary key
	identity  []string // the replica identity; all columns if it is FULL
	published bool
	filter    string  // SQL of the publication's row filter
	rows      float64 // an estimate
}

// readTable describes a table of a publication.
func readTable(ctx context.Context, db querier, version int, publication, table string) (t tableState, err error) {
	schema, name, _ := strings.Cut(table, ".")
	var oid uint32
	err = db.QueryRow(ctx, `SELECT c.oid, coalesce((SELECT sum(p.reltuples) FROM pg_partition_tree(c.oid) pt JOIN pg_class p ON p.oid = pt.relid WHERE pt.isleaf AND p.reltuples > 0), greatest(c.reltuples, 0))
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')`, schema, name).Scan(&oid, &t.rows)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	t.exists = true
	list, filter := "NULL::name[]", "''"
	if version >= 150000 {
		list, filter = "attnames", "coalesce(rowfilter, '')"
	}
	var listed []string
	err = db.QueryRow(ctx, `SELECT `+list+`, `+filter+` FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3`, publication, schema, name).Scan(&listed, &t.filter)
	switch {
	case err == nil:
		t.published = true
	case !errors.Is(err, pgx.ErrNoRows):
		return t, err
	}
	rows, err := db.Query(ctx, `SELECT a.attname, a.atttypid, a.attgenerated <> '', coalesce(a.attnum = ANY (pk.indkey), false),
			coalesce(c.relreplident = 'f' OR c.relreplident = 'd' AND a.attnum = ANY (pk.indkey) OR c.relreplident = 'i' AND a.attnum = ANY (ri.indkey), false)
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		LEFT JOIN pg_index pk ON pk.indrelid = c.oid AND pk.indisprimary LEFT JOIN pg_index ri ON ri.indrelid = c.oid AND ri.indisreplident
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, oid)
	if err != nil {
		return t, err
	}
	var column string
	var typ uint32
	var generated, inKey, inIdentity bool
	_, err = pgx.ForEachRow(rows, []any{&column, &typ, &generated, &inKey, &inIdentity}, func() error {
		if inKey {
			t.key = append(t.key, column)
		}
		if inIdentity {
			t.identity = append(t.identity, column)
		}
		// Before PostgreSQL 18 they are listed and not published.
		if listed != nil && !slices.Contains(listed, column) || generated && version < 180000 {
			return nil
		}
		t.columns, t.types = append(t.columns, column), append(t.types, typ)
		return nil
	})
	return t, err
}

// check returns a SetupError if events of the table cannot be made as the source says.
func (t tableState) check(table, publication string, entity []string) error {
	if !t.exists {
		return faultf("there is no table %s", table)
	}
	for _, name := range entity {
		switch {
		case !slices.Contains(t.columns, name):
			return faultf("table %s has no column %q, or does not publish it", table, name)
		case !slices.Contains(t.identity, name):
			return faultf("column %q of table %s is the entity and not in the replica identity, so deletes do not say which entity they are about: "+
				"ALTER TABLE %s REPLICA IDENTITY FULL, or an entity of its key", name, table, table)
		}
	}
	if !t.published {
		return faultf("table %s is not in the publication %s: weir source prepare, or ALTER PUBLICATION %s ADD TABLE %s", table, publication, quote(publication), table)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteTable(table string) string {
	schema, name, _ := strings.Cut(table, ".")
	return pgx.Identifier{schema, name}.Sanitize()
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
