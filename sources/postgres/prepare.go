package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Setup is the publication and the slot of some tables of a database.
type Setup struct {
	Source      string // its name in a file
	URL         string
	Slot        string
	Publication string
	Tables      []string // schema.name
}

// Prepare returns the statements that complete the setup, and executes them unless printOnly
// is set. again drops the slot before, and with it the changes that were not read.
func (s Setup) Prepare(ctx context.Context, printOnly, again bool) (statements []string, err error) {
	cfg, err := connConfig(s.URL, "weir source prepare")
	if err != nil {
		return nil, classify(err)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	statements, err = s.missing(ctx, conn, again)
	if err != nil || printOnly {
		return statements, classify(err)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, classify(err)
		}
	}
	return statements, nil
}

// missing returns the statements that complete the setup.
func (s Setup) missing(ctx context.Context, db querier, again bool) (statements []string, err error) {
	server, err := readServer(ctx, db)
	if err != nil {
		return nil, err
	}
	var published bool
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, s.Publication).Scan(&published); err != nil {
		return nil, err
	}
	if !published {
		statements = append(statements, fmt.Sprintf("CREATE PUBLICATION %s WITH (publish_via_partition_root = true)", quote(s.Publication)))
	}
	for _, table := range s.Tables {
		t, err := readTable(ctx, db, server.version, s.Publication, table, nil)
		switch {
		case err != nil:
			return nil, err
		case !t.exists:
			return nil, faultf("there is no table %s", table)
		case !t.published:
			statements = append(statements, fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", quote(s.Publication), quoteTable(table)))
		}
	}
	slot, err := readSlot(ctx, db, server.version, s.Slot)
	if err != nil {
		return nil, err
	}
	if slot.exists && again {
		statements = append(statements, fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", literal(s.Slot)))
	}
	if !slot.exists || again {
		statements = append(statements, createSlot(s.Slot, server.version))
	}
	return statements, nil
}

// createSlot returns the statement that makes a slot, which PostgreSQL 17 copies to its standbys.
func createSlot(name string, version int) string {
	failover := ""
	if version >= 170000 {
		failover = ", failover => true"
	}
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput'%s)", literal(name), failover)
}

// leastVersion is the first that streams large transactions.
const leastVersion = 140000

func checkServer(version int, level string) error {
	switch {
	case version < leastVersion:
		return faultf("the server is PostgreSQL %d, the source needs 14 or later", version/10000)
	case level != "logical":
		return faultf("wal_level is %s: set wal_level = logical in postgresql.conf (or ALTER SYSTEM SET wal_level = logical) and restart the server", level)
	}
	return nil
}
