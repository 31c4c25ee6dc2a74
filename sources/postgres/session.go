package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// session is one connection's work.
type session struct {
	r      *Reader
	db     *pgx.Conn // holds the lock of the slot
	log    *pgconn.PgConn
	server server
	lines  timelines
	own    *slotRow
	mark   mark       // in the row that the session holds
	id     string     // of the cluster, the database in it and the slot
	from   int64      // where the slot begins
	found  bool       // rows may have been read before: the slot was there without a mark, or there is a gap
	gaveUp kept[bool] // the slot was dropped for what it kept
	tables map[string]*table
	unread int // tables that lack rows
	types  types
	watch  watcher
	cancel context.CancelCauseFunc
}

// lockSpace is the first key of the advisory locks: one process reads a slot.
const lockSpace = 0x57656972

// session reads rows and changes until ctx ends or something fails.
func (r *Reader) session(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &session{r: r, own: newSlotRow(r.opt.Logs, r.opt.Positions), tables: map[string]*table{}, types: types{}, cancel: cancel}
	s.watch = watcher{s: s, seen: map[string]tableState{}}
	defer s.close()
	starting, started := context.WithTimeout(ctx, silence)
	defer started()
	var elsewhere *elsewhereError
	if err := s.connect(starting); errors.As(err, &elsewhere) {
		r.waitsFor(elsewhere)
		wait.Sleep(ctx, time.Second)
		return errAgain
	} else if err != nil {
		return err
	}
	r.waitsFor(nil)
	floors, known, err := s.claim(ctx) // it takes as long as the inbox has undecided events
	if err != nil {
		return s.fenced(err)
	}
	starting, started = context.WithTimeout(ctx, silence)
	defer started()
	if err := s.begin(starting, floors, known); err != nil {
		return s.fenced(err)
	}
	if err := s.chooseTables(starting); err != nil {
		return s.fenced(err)
	}
	r.setError(nil)
	var watching sync.WaitGroup
	watching.Go(func() { s.watch.run(ctx) })
	defer watching.Wait()
	defer cancel(nil)
	assignment := transport.NextAssignment()
	for _, source := range r.sources {
		source.assignment = assignment
	}
	err = s.stream(ctx)
	if errors.Is(err, errDiverged) {
		if err = s.save(ctx, func(m *mark) { m.Diverged = true }); err == nil {
			return errAgain
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.fenced(again(ctx, err))
}

// fenced ends a session whose row another one has taken, or a restored store has lost: the next one
// compares everything.
func (s *session) fenced(err error) error {
	if errors.Is(err, store.ErrFenced) {
		s.r.log.Info("another session took the slot's row in the store, or the store was restored: beginning again", "event", "source.fenced")
		return errAgain
	}
	return err
}

func (s *session) close() {
	for _, source := range s.r.sources {
		source.setSnapshot(0, 0, false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.r.opt.StopGrace)
	defer cancel()
	if s.log != nil {
		_ = s.log.Close(ctx)
	}
	if s.db != nil {
		_ = s.db.Close(ctx)
	}
}

// connect opens both connections and takes the slot's lock.
func (s *session) connect(ctx context.Context) (err error) {
	if s.db, err = s.r.connect(ctx); err != nil {
		return err
	}
	if s.server, err = readServer(ctx, s.db); err != nil {
		return err
	}
	var locked bool
	if err := s.db.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext($2))", int32(lockSpace), s.r.opt.Slot).Scan(&locked); err != nil {
		return err
	}
	if reader, err := readReader(ctx, s.db, s.r.opt.Slot); err != nil || reader != nil || !locked {
		return errors.Join(err, reader.error(s.r.application))
	}
	s.log, err = s.r.replication(ctx)
	return err
}

// replication opens a connection for replication commands.
func (r *Reader) replication(ctx context.Context) (*pgconn.PgConn, error) {
	cfg, err := r.connConfig()
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["replication"] = "database"
	delete(cfg.RuntimeParams, "statement_timeout")
	conn, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	return conn, pooled(err)
}

// begin finds the slot's place, and whether there is a gap before it.
func (s *session) begin(ctx context.Context, floors []store.Floor, known bool) error {
	system, err := pglogrepl.IdentifySystem(ctx, s.log)
	if err != nil {
		return err
	}
	history := ""
	if system.Timeline > 1 {
		h, err := pglogrepl.TimelineHistory(ctx, s.log, system.Timeline)
		if err != nil {
			return err
		}
		history = string(h.Content)
	}
	if s.lines, err = parseTimelines(system.Timeline, history); err != nil {
		return err
	}
	opt := s.r.opt
	s.id = fmt.Sprintf("postgres-%s-%d-%s", system.SystemID, s.server.oid, opt.Slot)
	moved := known && s.mark.Database != s.id
	s.gaveUp = kept[bool]{positions: s.own, source: opt.Source, identity: s.id + "/given up"}
	if _, err := s.gaveUp.load(ctx); err != nil {
		return err
	}
	slot, err := s.slot(ctx, known && !moved)
	if err != nil {
		return err
	}
	m, torn := &s.mark, s.own.row.Torn
	why := m.unheard(floors, torn, s.lines, s.server.position)
	switch {
	case moved:
		why = "the database or the slot is another one than was read"
	case known:
		why = cmp.Or(m.gap(slot, s.lines, s.server.position), why)
	}
	if !known || why != "" {
		*m = m.next(s.own.session().Number, slot.confirmed)
	}
	if why != "" {
		s.found = true // a restored store may lack the marks of tables whose rows were read
		s.r.log.Warn("changes may be missing: reading all rows again", "event", "source.gap", "reason", why)
	}
	m.Timeline, m.Database = system.Timeline, s.id
	s.from = slot.confirmed
	s.lines.prefix, s.lines.era, s.lines.session = s.id+"-"+m.Epoch, m.Era, s.own.session().Header()
	s.r.flushed.Store(slot.confirmed)
	if s.gaveUp.value {
		s.gaveUp.value = false
		if err := s.gaveUp.save(ctx); err != nil {
			return err
		}
	}
	if err := s.own.swap(ctx, func(row *store.SourceLog) (err error) {
		row.Torn = false
		row.State, err = json.Marshal(s.mark)
		return err
	}); err != nil {
		return err
	}
	crash.At(crash.EpochStored, opt.Source)
	if known && why == "" {
		return nil
	}
	return s.barrier(ctx, s.own.session()) // letters of earlier epochs are obsolete
}

// slot returns the slot, which is made together with the publication before the first session.
func (s *session) slot(ctx context.Context, known bool) (slotState, error) {
	opt := s.r.opt
	slot, err := readSlot(ctx, s.db, s.server.version, opt.Slot)
	if err != nil {
		return slot, err
	}
	if !slot.exists && known && s.gaveUp.value {
		return slot, faultf("Weir gave replication slot %q up when it kept more of the log than postgres.retain (%d bytes): weir source prepare makes a new one, and the rows are read again", opt.Slot, opt.Retain)
	}
	if s.found = slot.exists && !known; !slot.exists && !known {
		statements, faults, err := opt.Setup.missing(ctx, s.db, false)
		if err != nil {
			return slot, err
		}
		if len(faults) == len(opt.Setup.Tables) { // otherwise a table with a fault costs itself
			return slot, errors.Join(faults...)
		}
		err = opt.Setup.execute(ctx, s.db, s.r.connect, statements, s.r.setWaits)
		s.r.setWaits(nil)
		switch code := new(pgconn.PgError); {
		case errors.As(err, &code) && code.Code == "42501":
			return slot, fmt.Errorf("weir source prepare --sql prints the setup for a role that may do it: %w", err)
		case err != nil:
			return slot, err
		}
		crash.At(crash.SlotMade, opt.Source)
		if slot, err = readSlot(ctx, s.db, s.server.version, opt.Slot); err != nil {
			return slot, err
		}
	}
	return slot, slot.check(opt.Slot, s.server.database, known)
}

// chooseTables sets the faults of tables that cannot be read, and finds out which rows are to be
// read again: those of tables whose changes passed meanwhile, or whose identity changed.
func (s *session) chooseTables(ctx context.Context) error {
	unbroken := s.mark.Tables
	s.mark.Tables = nil
	for _, name := range slices.Sorted(maps.Keys(s.r.sources)) {
		source := s.r.sources[name]
		is, err := s.r.readTable(ctx, s.db, s.server.version, name)
		if err != nil {
			return err
		}
		if fault := is.check(name, s.r.opt.Publication); fault != nil {
			s.r.log.Warn("a table cannot be read", "event", "source.table_unreadable", "table", name, "error", fault)
			source.setFault(fault)
			continue
		}
		source.setFault(nil)
		t := &table{s: s, name: name, source: source, mark: kept[tableMark]{positions: s.own, source: source.name, identity: s.id + "/" + name}}
		if _, err := t.mark.load(ctx); err != nil {
			return err
		}
		if err := t.continues(ctx, is, slices.Contains(unbroken, name)); err != nil {
			return err
		}
		t.choose(is)
		if !t.mark.value.Done {
			s.unread++
		}
		s.tables[name] = t
	}
	s.mark.Tables = slices.Sorted(maps.Keys(s.tables))
	return nil
}
