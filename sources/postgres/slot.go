package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// logRemoved is why most slots are lost.
const logRemoved = "the log that it needs was removed (max_slot_wal_keep_size)"

// readSlot describes a slot.
func readSlot(ctx context.Context, db querier, version int, name string) (s slotState, err error) {
	reason, failover := "''", "true"
	if version >= 160000 {
		reason = "CASE WHEN conflicting THEN 'it conflicted with recovery' ELSE '' END"
	}
	if version >= 170000 {
		reason, failover = "coalesce(invalidation_reason, '')", "failover"
	}
	// The server names the setting to blame.
	reason = "CASE " + reason + " WHEN 'idle_timeout' THEN 'it was unused for too long (idle_replication_slot_timeout)' WHEN 'wal_removed' THEN '" + logRemoved + "' " +
		"WHEN '' THEN CASE WHEN wal_status = 'lost' THEN '" + logRemoved + "' ELSE '' END ELSE " + reason + " END"
	err = db.QueryRow(ctx, `SELECT coalesce(plugin, ''), coalesce(database, ''),
		`+reason+`,
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
	identity
	exists      bool
	partitioned bool
	unlogged    bool
	children    bool // tables inherit from it
	hidden      bool // row-level security hides rows from the role
	readable    bool
	columns     []string // that are published, in their order
	types       []uint32
	names       map[string]int16 // numbers of the columns that are published or generated
	key         []string         // the primary key
	replica     []string         // the replica identity; all columns if it is FULL
	full        bool             // the replica identity is
	unique      [][]int16        // columns of unique indexes that hold within a transaction, too
	generated   map[string]bool  // columns, by name: published or not, they are left out
	virtual     bool             // one of them is not stored
	ungenerated bool             // the publication leaves generated columns out, where it could have them
	published   bool
	leaf        bool     // a partition is published under its own name
	withheld    []string // operations that the publication leaves out
	filter      string   // SQL of the publication's row filter
	rows        float64  // an estimate
}

// readTable describes a table of a publication; entity is configured.
func readTable(ctx context.Context, db querier, version int, publication, table string, entity []string) (t tableState, err error) {
	schema, name, _ := strings.Cut(table, ".")
	t.Entity = entity
	var kind, persistence, unique string
	err = db.QueryRow(ctx, `SELECT c.oid, c.relkind::text, c.relpersistence::text, c.relfilenode, c.reltoastrelid, c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
			row_security_active(c.oid), has_table_privilege(c.oid, 'SELECT'),
			c.relreplident = 'f', coalesce((SELECT string_agg(array_to_string((i.indkey::int2[])[0:i.indnkeyatts - 1], ' '), ',') FROM pg_index i
				WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL), ''),
			coalesce((SELECT string_agg(d.xmin::text, ' ') FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0 AND d.refclassid = 'pg_namespace'::regclass), ''),
			coalesce((SELECT sum(p.reltuples) FROM pg_partition_tree(c.oid) pt JOIN pg_class p ON p.oid = pt.relid WHERE pt.isleaf AND p.reltuples > 0), greatest(c.reltuples, 0)),
			CASE WHEN c.relkind = 'p' THEN coalesce((WITH RECURSIVE tree AS (SELECT c.oid AS relid UNION ALL
				SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.relid WHERE NOT i.inhdetachpending)
				SELECT string_agg(format('%s.%s', p.oid, p.relfilenode), ' ' ORDER BY p.oid) FROM tree JOIN pg_class p ON p.oid = tree.relid WHERE p.relkind <> 'p'), '') ELSE '' END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')`, schema, name).
		Scan(&t.OID, &kind, &persistence, &t.File, &t.Toast, &t.children, &t.hidden, &t.readable, &t.full, &unique, &t.Schema, &t.rows, &t.Leaves)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	t.exists, t.partitioned, t.unlogged = true, kind == "p", persistence == "u"
	for index := range strings.SplitSeq(unique, ",") {
		var numbers []int16
		for number := range strings.FieldsSeq(index) {
			n, err := strconv.ParseInt(number, 10, 16)
			if err != nil {
				return t, err
			}
			numbers = append(numbers, int16(n))
		}
		t.unique = append(t.unique, numbers)
	}
	listed, err := t.readPublication(ctx, db, version, publication, table)
	if err != nil {
		return t, err
	}
	return t, t.readColumns(ctx, db, listed)
}

// readPublication reads a table's entry in a publication, and returns the published columns; nil
// if they are all.
func (t *tableState) readPublication(ctx context.Context, db querier, version int, publication, table string) (listed []string, err error) {
	schema, name, _ := strings.Cut(table, ".")
	list, filter, schemas, ungenerated := "NULL::name[]", "''", "''", "false"
	if version >= 180000 {
		ungenerated = "p.pubgencols = 'n'"
	}
	if version >= 150000 {
		list, filter = "t.attnames", "coalesce(t.rowfilter, '')"
		schemas = `coalesce((SELECT string_agg(format('%s.%s', e.oid, e.xmin), ' ' ORDER BY e.oid) FROM pg_publication_namespace e WHERE e.pnpubid = p.oid
			AND e.pnnspid IN (SELECT c.relnamespace FROM pg_class c JOIN tree ON tree.relid = c.oid)), '')`
	}
	var own, whole string
	var all bool
	var insert, update, remove, truncate bool
	err = db.QueryRow(ctx, `WITH tree AS (SELECT $4::oid AS relid UNION SELECT pg_partition_ancestors($4::oid)::oid)
		SELECT format('%s.%s', p.oid, p.xmin), p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
			coalesce((SELECT string_agg(format('%s.%s', e.oid, e.xmin), ' ' ORDER BY e.oid) FROM pg_publication_rel e JOIN tree ON tree.relid = e.prrelid WHERE e.prpubid = p.oid), ''), `+schemas+`,
			`+ungenerated+`, t.tablename IS NOT NULL, `+list+`, `+filter+`
		FROM pg_publication p LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3 WHERE p.pubname = $1`, publication, schema, name, t.OID).
		Scan(&t.Publication, &all, &insert, &update, &remove, &truncate, &own, &whole, &t.ungenerated, &t.published, &listed, &t.filter)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	t.Listed = own != "" && whole == "" && !all
	t.Entry = fmt.Sprint(all, own, "/", whole)
	for _, operation := range []struct {
		name      string
		published bool
	}{{"insert", insert}, {"update", update}, {"delete", remove}, {"truncate", truncate}} {
		if !operation.published {
			t.withheld = append(t.withheld, operation.name)
		}
	}
	if err != nil || t.published || !t.partitioned {
		return listed, err
	}
	return listed, db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_partition_tree($2::oid) pt JOIN pg_class c ON c.oid = pt.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_publication_tables l ON l.schemaname = n.nspname AND l.tablename = c.relname WHERE l.pubname = $1)`, publication, t.OID).Scan(&t.leaf)
}

// readColumns reads the columns and the keys.
func (t *tableState) readColumns(ctx context.Context, db querier, listed []string) error {
	rows, err := db.Query(ctx, `SELECT a.attname, a.attnum, a.atttypid, a.xmin::text, format('%s.%s.%s', a.atttypid, a.atttypmod, a.attcollation), a.attgenerated::text, coalesce(a.attnum = ANY (pk.indkey), false),
			coalesce(c.relreplident = 'f' OR c.relreplident = 'd' AND pk.indimmediate AND a.attnum = ANY (pk.indkey) OR c.relreplident = 'i' AND a.attnum = ANY (ri.indkey), false)
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		LEFT JOIN pg_index pk ON pk.indrelid = c.oid AND pk.indisprimary LEFT JOIN pg_index ri ON ri.indrelid = c.oid AND ri.indisreplident
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.OID)
	if err != nil {
		return err
	}
	t.Types, t.names, t.generated = map[int16]string{}, map[string]int16{}, map[string]bool{}
	var column, changed, form, generated string
	var number int16
	var typ uint32
	var inKey, inReplica, own bool
	_, err = pgx.ForEachRow(rows, []any{&column, &number, &typ, &changed, &form, &generated, &inKey, &inReplica}, func() error {
		own = own || typ >= firstOwnType
		hidden := listed != nil && !slices.Contains(listed, column)
		if !hidden || generated != "" {
			t.names[column], t.Types[number] = number, fmt.Sprint(typ)
		}
		if generated != "" {
			t.Types[number] += " generated"
			t.generated[column], t.virtual = true, t.virtual || generated == "v"
		}
		t.Shape += fmt.Sprintf("%d.%s ", number, changed)
		if inKey {
			t.key = append(t.key, column)
			t.Key += fmt.Sprintf("%d.%s ", number, form)
		}
		if inReplica {
			t.replica = append(t.replica, column)
		}
		if hidden || generated != "" {
			return nil
		}
		t.columns, t.types = append(t.columns, column), append(t.types, typ)
		return nil
	})
	if err != nil || !own {
		return err
	}
	return t.readValues(ctx, db)
}

// firstOwnType is the lowest OID of a type that was made in a database: those below are PostgreSQL's, and
// none of them is an enum or changes (FirstNormalObjectId in access/transam.h).
const firstOwnType = 16384

// readValues reads identity.Values, also of types inside of arrays, domains, ranges and composite types.
func (t *tableState) readValues(ctx context.Context, db querier) error {
	rows, err := db.Query(ctx, `WITH RECURSIVE used(oid) AS (
			SELECT atttypid FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
			UNION
			SELECT inside.oid FROM used JOIN pg_type t ON t.oid = used.oid, LATERAL (
				SELECT unnest(ARRAY[t.typbasetype, t.typelem]) AS oid
				UNION ALL SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid
				UNION ALL SELECT atttypid FROM pg_attribute WHERE t.typtype = 'c' AND attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) inside)
		SELECT format('label %s', e.oid), e.enumlabel FROM pg_enum e JOIN used ON used.oid = e.enumtypid
		UNION ALL SELECT format('type %s', t.oid), string_agg(format('%s %s', a.attname, a.atttypid), ', ' ORDER BY a.attnum)
		FROM used JOIN pg_type t ON t.oid = used.oid AND t.typtype = 'c' JOIN pg_attribute a ON a.attrelid = t.typrelid
		WHERE a.attnum > 0 AND NOT a.attisdropped GROUP BY t.oid`, t.OID)
	if err != nil {
		return err
	}
	t.Values = map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		t.Values[name] = value
		return nil
	})
	return err
}

// passed reports whether the rows that were read are of another table than the present one.
func (t tableState) passed(is tableState) bool {
	names := columnNames{}
	names.learn(t.names)
	return t.differs(is.identity) != "" || names.breaks(is.names) != ""
}

// shared reports whether two rows may have one entity for a while: no unique index keeps them apart.
func (t tableState) shared() bool {
	return !slices.ContainsFunc(t.unique, func(index []int16) bool {
		return len(index) > 0 && !slices.ContainsFunc(index, func(number int16) bool {
			return !slices.ContainsFunc(t.Entity, func(name string) bool { return t.names[name] == number })
		})
	})
}

// harm returns a SetupError if a publication must not have the table: its UPDATEs and DELETEs would fail
// in the application.
func (t tableState) harm(table, publication string) error {
	switch {
	case len(t.replica) == 0:
		return faultf("table %s has no usable replica identity (no primary key, a deferrable one, or NOTHING), so in a publication its UPDATEs and DELETEs would fail: "+
			"ALTER TABLE %s REPLICA IDENTITY FULL, or USING INDEX of a unique index that is not deferrable", table, table)
	case t.full && t.virtual:
		return faultf("table %s has virtual generated columns and REPLICA IDENTITY FULL, so in a publication its UPDATEs and DELETEs would fail: "+
			"another replica identity, or stored columns", table)
	case t.full && t.ungenerated && len(t.generated) > 0:
		return faultf("table %s has generated columns and REPLICA IDENTITY FULL, so its UPDATEs and DELETEs fail: ALTER PUBLICATION %s SET (publish_generated_columns = stored)", table, quote(publication))
	}
	return nil
}

// check returns a SetupError if events of the table cannot be made as the source says.
func (t tableState) check(table, publication string) error {
	switch {
	case !t.exists:
		return faultf("there is no table %s", table)
	case t.children:
		return faultf("other tables inherit from table %s, and their rows are not in its changes: name these tables, or make it a partitioned table", table)
	case t.unlogged:
		return faultf("table %s is unlogged, so its changes are not in the log: ALTER TABLE %s SET LOGGED", table, table)
	case !t.readable:
		return faultf("the role may not read table %s: GRANT SELECT ON %s to it", table, quoteTable(table))
	case t.hidden:
		return faultf("row-level security hides rows of table %s from the role: ALTER ROLE … BYPASSRLS, or let the role own the table", table)
	}
	if err := t.harm(table, publication); err != nil {
		return err
	}
	for _, name := range t.Entity {
		switch {
		case !slices.Contains(t.columns, name):
			return faultf("table %s has no column %q, or does not publish it", table, name)
		case !slices.Contains(t.replica, name):
			return faultf("column %q of table %s is the entity and not in the replica identity, so deletes do not say which entity they are about: "+
				"ALTER TABLE %s REPLICA IDENTITY FULL, or an entity of its key", name, table, table)
		}
	}
	switch {
	case !t.published && t.partitioned && t.leaf:
		return faultf("publication %s sends partitions of table %s under their own names: ALTER PUBLICATION %s SET (publish_via_partition_root = true)", publication, table, quote(publication))
	case !t.published:
		return faultf("table %s is not in the publication %s: weir source prepare, or ALTER PUBLICATION %s ADD TABLE %s", table, publication, quote(publication), table)
	case len(t.withheld) > 0:
		return faultf("publication %s leaves out %s: ALTER PUBLICATION %s SET (publish = 'insert, update, delete, truncate')", publication, strings.Join(t.withheld, ", "), quote(publication))
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteTable(table string) string {
	schema, name, _ := strings.Cut(table, ".")
	return pgx.Identifier{schema, name}.Sanitize()
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
