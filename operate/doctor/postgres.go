package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/store"
)

// leastPostgres is the oldest version that the store is made for.
const leastPostgres = 150000

const sqlLook = `SELECT current_setting('server_version_num')::int, current_setting('server_version'), clock_timestamp(),
  pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
  current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()),
  (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user), current_user`

// postgres examines the store's server.
func (e *examination) postgres(ctx context.Context) error {
	p := e.cfg.Store.Postgres
	conn, err := reach.Connect(ctx, p.URL.Reveal())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var (
		number, connections, used                              int
		version, commit, user                                  string
		clock                                                  time.Time
		standby, readOnly, synced, wholePages, aboveItsPolices bool
	)
	if err := conn.Ping(ctx); err != nil { // so that the next takes one round trip
		return err
	}
	before := e.now()
	if err := conn.QueryRow(ctx, sqlLook).Scan(&number, &version, &clock, &standby, &readOnly, &synced, &wholePages, &commit, &connections, &used, &aboveItsPolices, &user); err != nil {
		return err
	}
	e.clock("store", clock, before, e.now())
	e.fact("PostgreSQL %s", version)
	if number < leastPostgres {
		e.add("store", operate.LevelDown, "PostgreSQL "+version+" is too old", "upgrade it to 15 or later")
	}
	if standby || readOnly {
		e.add("store", operate.LevelDown, "it takes no writes: a standby, or default_transaction_read_only", "let store.postgres.url name the primary, for instance with target_session_attrs=read-write")
	}
	if !synced || !wholePages {
		e.add("store", operate.LevelDown, "fsync or full_page_writes is off: a crash of its machine may destroy the database", "set both to on and restart it")
	}
	if commit == "off" {
		e.add("store", operate.LevelDegraded, "synchronous_commit is off: a crash loses the last commits, and what they held is decided and sent again", "ALTER ROLE "+pgx.Identifier{user}.Sanitize()+" SET synchronous_commit = on")
	}
	if free := connections - used; free < p.MaxConnections {
		e.add("store", operate.LevelDegraded, fmt.Sprintf("%d of %d connections are free, and a process takes up to %d", max(0, free), connections, p.MaxConnections), "raise max_connections, put a pooler in front (store.postgres.pooled: true), or lower store.postgres.max_connections")
	} else {
		e.fact("%d of %d connections free", free, connections)
	}
	if aboveItsPolices {
		e.add("store", operate.LevelDegraded, "the role "+user+" is a superuser or has BYPASSRLS: the policies that keep tenants apart do not bind it", "give Weir a role of its own that owns its schema and nothing more")
	}
	return nil
}

// tables checks whether the store has the tables of this build, and adds what processes reported
// lately: few entities in memory, problems of services.
func (e *examination) tables(ctx context.Context, answers bool) {
	if _, err := os.Stat(e.cfg.Store.File); !answers || e.cfg.Store.Postgres == nil && err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := assemble.OpenReadOnly(ctx, e.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		e.add("store", operate.LevelDown, oneLine(err), remedy.Of("store", err))
		return
	}
	defer s.Close()
	if err := s.CheckSchema(ctx); err != nil {
		do := remedy.Of("store", err)
		if errors.Is(err, store.ErrSchema) {
			do = "weir migrate -c " + e.cfg.File
		}
		e.add("store", operate.LevelDown, oneLine(err), do)
		return
	}
	e.fact("tables of this build")
	processes, err := operate.Processes(ctx, s)
	if err != nil {
		e.add("store", operate.LevelDegraded, oneLine(err), remedy.Of("store", err))
	}
	for i := range processes {
		if !processes[i].Alive(e.now()) {
			continue
		}
		e.memory(processes[i])
		for _, x := range processes[i].Services {
			e.findings = append(e.findings, operate.Item{What: x.Service, Level: x.Level, Since: x.Since, Why: "its deliveries: " + x.Error, Do: x.Do})
		}
	}
}
