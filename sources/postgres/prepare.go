package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/wait"
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
// is set. It fails before, with all faults, if a table or the slot cannot be read as it is, or if a
// publication would make the application's UPDATEs of a table fail. again drops the slot before, and
// with it the changes that were not read. It calls waits, if given, with the oldest open transaction
// while that holds up the slot.
func (s Setup) Prepare(ctx context.Context, printOnly, again bool, waits func(error)) (statements []string, err error) {
	cfg, err := connConfig(s.URL, "weir source prepare")
	if err != nil {
		return nil, classify(err)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	statements, faults, err := s.missing(ctx, conn, again)
	if err := cmp.Or(err, errors.Join(faults...)); err != nil {
		return nil, classify(err)
	}
	if printOnly {
		return statements, nil
	}
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }
	return statements, classify(s.execute(ctx, conn, connect, statements, waits))
}

// execute executes the statements that complete the setup.
func (s Setup) execute(ctx context.Context, conn *pgx.Conn, connect func(context.Context) (*pgx.Conn, error), statements []string, waits func(error)) error {
	within, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if waits != nil {
		watching.Go(func() {
			if !wait.Sleep(within, 2*time.Second) {
				return
			}
			db, err := connect(within)
			if err != nil {
				return // the statement fails, too
			}
			defer func() { _ = db.Close(context.WithoutCancel(within)) }()
			if open, err := openTransaction(within, db); err == nil && open != nil {
				waits(open)
			}
		})
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// older returns a SetupError if the slot has changes from before the publication was made, which a server
// before PostgreSQL 18 cannot send. A slot that is read now is not tried.
func (s Setup) older(ctx context.Context, db querier) error {
	defer func() { _ = db.QueryRow(ctx, "SELECT set_config('statement_timeout', '0', false)").Scan(new(string)) }()
	var n int
	err := db.QueryRow(ctx, "SELECT set_config('statement_timeout', '5s', false)").Scan(new(string))
	if err == nil {
		err = db.QueryRow(ctx, "SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, 1, 'proto_version', '1', 'publication_names', $2)", s.Slot, quote(s.Publication)).Scan(&n)
	}
	return s.madeAgain(err)
}

// madeAgain returns a SetupError if err says that the publication is younger than the slot; else nil.
func (s Setup) madeAgain(err error) error {
	if server := new(pgconn.PgError); errors.As(err, &server) && server.Code == "42704" && strings.Contains(server.Message, "publication") {
		return faultf("replication slot %q is older than the publication %q, whose changes it cannot send before that was made: weir source prepare --again makes a new slot, and the rows are read again",
			s.Slot, s.Publication)
	}
	return nil
}

// missing returns the statements that complete the setup, and the faults of tables that it leaves out.
func (s Setup) missing(ctx context.Context, db querier, again bool) (statements []string, faults []error, err error) {
	server, err := readServer(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	var published bool
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, s.Publication).Scan(&published); err != nil {
		return nil, nil, err
	}
	if !published {
		with := "publish_via_partition_root = true"
		if server.version >= 180000 { // else REPLICA IDENTITY FULL stops the updates of tables that have them
			with += ", publish_generated_columns = stored"
		}
		statements = append(statements, fmt.Sprintf("CREATE PUBLICATION %s WITH (%s)", quote(s.Publication), with))
	}
	for _, table := range s.Tables {
		t, err := readTable(ctx, db, server.version, s.Publication, table, nil)
		if err != nil {
			return nil, nil, err
		}
		add := !t.published && !t.leaf
		t.published = t.published || add
		if fault := t.check(table, s.Publication); fault != nil {
			faults = append(faults, fault)
		} else if add {
			statements = append(statements, fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", quote(s.Publication), quoteTable(table)))
		}
	}
	slot, err := readSlot(ctx, db, server.version, s.Slot)
	if err == nil && slot.exists && !again {
		if err = slot.check(s.Slot, server.database, true); err == nil && published {
			err = s.older(ctx, db)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if slot.exists && again {
		statements = append(statements, fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", literal(s.Slot)))
	}
	if !slot.exists || again {
		statements = append(statements, createSlot(s.Slot, server.version))
	}
	return statements, faults, nil
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

func checkServer(version int, level string, standby bool) error {
	switch {
	case version < leastVersion:
		return faultf("the server is PostgreSQL %d, the source needs 14 or later", version/10000)
	case level != "logical":
		return faultf("wal_level is %s: set wal_level = logical in postgresql.conf (or ALTER SYSTEM SET wal_level = logical) and restart the server", level)
	case standby:
		return faultf("the server is a standby, which takes no publication: name the primary in url, or all servers with target_session_attrs=primary")
	}
	return nil
}
