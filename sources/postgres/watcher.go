package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// watcher measures the slot of a session and ends the session when a table's fault begins or ends, when a
// table has another identity, or when the slot keeps too much.
type watcher struct {
	s    *session
	mu   sync.Mutex
	seen map[string]tableState // tables that are read, as the session knows them; guarded by mu
}

// note records the state that the next look compares with.
func (w *watcher) note(table string, t tableState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[table] = t
}

func (w *watcher) run(ctx context.Context) {
	for wait.Sleep(ctx, w.s.r.opt.Watch) {
		if err := w.look(ctx); err != nil {
			if ctx.Err() == nil {
				w.s.cancel(err)
			}
			return
		}
	}
}

func (w *watcher) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	r, version := w.s.r, w.s.server.version
	db, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	slot, err := readSlot(ctx, db, version, r.opt.Slot)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.retained = slot.retained
	r.mu.Unlock()
	if most := r.opt.Retain; most > 0 && slot.retained > most {
		return w.giveUp(ctx, db, slot.retained)
	}
	for table := range r.sources {
		t, err := r.readTable(ctx, db, version, table)
		if err != nil {
			return err
		}
		w.mu.Lock()
		seen, read := w.seen[table]
		w.mu.Unlock()
		if readable := t.check(table, r.opt.Publication) == nil; readable != read || readable && seen.passed(t) {
			return errAgain
		}
	}
	return nil
}

// giveUp drops the slot, so that the server's disk does not fill up.
func (w *watcher) giveUp(ctx context.Context, db *pgx.Conn, retained int64) error {
	opt, gaveUp := w.s.r.opt, &w.s.gaveUp
	w.s.r.log.Error("the slot keeps more of the log than it may: dropping it", "event", "source.slot_given_up", "slot", opt.Slot, "bytes", retained, "limit", opt.Retain)
	gaveUp.value = true
	if err := gaveUp.save(ctx); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active", opt.Slot); err != nil {
		return err
	}
	for {
		_, err := db.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", opt.Slot)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "55006" { // the walsender has not ended yet
			return errors.Join(err, errAgain)
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}
