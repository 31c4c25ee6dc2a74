package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// applicationName is the name of a reader's connections in the database: other processes of the
// pipeline have the same, and no other pipeline has.
func applicationName(source, pipeline string) string {
	name := "weir source " + source
	if pipeline != "" {
		name = "weir " + pipeline[:min(len(pipeline), 12)] + " source " + source
	}
	return name[:min(len(name), 63)] // PostgreSQL cuts it there
}

// reader is the process that reads a slot.
type otherReader struct {
	pid         int32
	application string
	address     string
	since       time.Time
}

// readReader returns who has the lock of a slot, or streams it, other than this connection; nil if
// there is no such process.
func readReader(ctx context.Context, db querier, slot string) (*otherReader, error) {
	o := &otherReader{}
	err := db.QueryRow(ctx, `SELECT a.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'this server'), coalesce(a.backend_start, now())
		FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid() AND a.pid IN (
			SELECT active_pid FROM pg_replication_slots WHERE slot_name = $2 AND active
			UNION ALL SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
			WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = $1 AND l.objid::bigint = hashtext($2)::bigint & 4294967295)
		LIMIT 1`, int64(lockSpace), slot).Scan(&o.pid, &o.application, &o.address, &o.since)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // the documented value
	}
	return o, err
}

// error returns the answer to a reader with this name that finds the slot taken.
func (o *otherReader) error(own string) error {
	if o == nil {
		o = &otherReader{application: own} // it ended just now
	}
	return &elsewhereError{otherReader: *o, foreign: o.application != own}
}

// elsewhereError says who reads the slot.
type elsewhereError struct {
	otherReader
	foreign bool // it is no process of this pipeline
}

func (e *elsewhereError) Error() string {
	if e.pid == 0 {
		return "another process of this pipeline has the lock of the slot, and ends"
	}
	who := fmt.Sprintf("%q (pid %d, from %s, since %s)", e.application, e.pid, e.address, e.since.UTC().Format(time.RFC3339))
	if e.foreign {
		return "another program reads the slot: " + who + ". Each pipeline needs a slot of its own (postgres.slot)"
	}
	return "another process of this pipeline reads the slot: " + who
}

// waitsFor notes who reads the slot; nil: this process. Another process of the pipeline is no fault: this one
// takes over when it ends.
func (r *Reader) waitsFor(e *elsewhereError) {
	said, by := "", ""
	if e != nil && !e.foreign {
		by = e.Error()
	}
	r.mu.Lock()
	said, r.readBy = r.readBy, by
	r.mu.Unlock()
	switch {
	case by != "":
		r.setError(nil)
		if said != by {
			r.log.Info("waiting for the slot", "event", "source.elsewhere", "because", by)
		}
	case e != nil && r.setError(faultf("%s", e.Error())):
		r.log.Warn("the slot is read elsewhere; waiting", "event", "source.elsewhere", "error", e)
	}
}

// openError says that a slot that is being made waits for the transactions that are open.
type openError struct {
	pid      int32 // of the oldest; 0: it is prepared, or not known
	prepared bool
	since    time.Time // zero: not known
}

// old reports whether it is known to be older than openPatience.
func (e *openError) old() bool { return !e.since.IsZero() && time.Since(e.since) > openPatience }

func (e *openError) Error() string {
	who := ""
	switch {
	case e.pid != 0:
		who = fmt.Sprintf(": the oldest is of pid %d", e.pid)
	case e.prepared:
		who = ": the oldest is a prepared one (pg_prepared_xacts)"
	}
	if !e.since.IsZero() {
		who += ", since " + e.since.UTC().Format(time.RFC3339)
	}
	return "a slot cannot be made before the transactions end that are open" + who
}

// openTransaction returns the oldest transaction of the server that writes; nil without one. A role may
// not see the beginnings of others.
func openTransaction(ctx context.Context, db querier) (*openError, error) {
	e := &openError{}
	var since *time.Time
	err := db.QueryRow(ctx, `SELECT coalesce(l.pid, 0), p.gid IS NOT NULL, coalesce(a.xact_start, p.prepared) AS since FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
		WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted ORDER BY since LIMIT 1`).Scan(&e.pid, &e.prepared, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // the documented value
	}
	if since != nil {
		e.since = *since
	}
	return e, err
}
