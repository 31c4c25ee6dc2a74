package postgres

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// pair is a primary and a standby that can have copies of slots.
type pair struct {
	*shop
	primary, standby *servers.Server
	replica          *pgx.Conn // to the standby
}

// newPair makes a pair with a table, and reads its rows.
func newPair(t *testing.T, version string) *pair {
	p := &pair{primary: servers.StartOwnPostgres(t, version), standby: servers.StartOwnPostgres(t, version)}
	p.shop = newShop(t, p.primary.Address, map[string][]string{"public.orders": {"id"}},
		"CREATE TABLE orders (id int PRIMARY KEY, v int)", "INSERT INTO orders SELECT n, 0 FROM generate_series(1, 10) n", "SELECT pg_create_physical_replication_slot('standby')")
	p.connect()
	var from, to string
	require.NoError(t, p.conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&from))
	require.NoError(t, p.replica.QueryRow(t.Context(), "SHOW data_directory").Scan(&to))
	p.primary.Stop()
	p.standby.Stop()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, exec.Command("cp", "-a", from, to).Run())
	u, err := url.Parse(p.primary.Address)
	require.NoError(t, err)
	settings := fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=%s dbname=postgres'\nprimary_slot_name = 'standby'\nhot_standby_feedback = on\n", u.Hostname(), u.Port(), u.User.Username())
	auto, err := os.OpenFile(filepath.Join(to, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = auto.WriteString(settings)
	require.NoError(t, err)
	require.NoError(t, auto.Close())
	require.NoError(t, os.WriteFile(filepath.Join(to, "standby.signal"), nil, 0o644))
	p.primary.Start()
	p.standby.Start()
	p.at(p.primary.Address)
	p.connect()
	r := p.start()
	p.drain(r)
	p.copySlot()
	r.stop()
	return p
}

// connect connects to the standby.
func (p *pair) connect() {
	p.t.Helper()
	if p.replica != nil {
		_ = p.replica.Close(p.t.Context())
	}
	var err error
	p.replica, err = pgx.Connect(p.t.Context(), p.standby.Address)
	require.NoError(p.t, err)
}

// follow waits until the standby has everything.
func (p *pair) follow() {
	p.t.Helper()
	var end string
	require.NoError(p.t, p.conn.QueryRow(p.t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end))
	p.await(func() bool {
		var there bool
		err := p.replica.QueryRow(p.t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", end).Scan(&there)
		return err == nil && there
	})
}

// copySlot waits until the standby has a copy of the slot as it is. A reader is to move the slot meanwhile.
func (p *pair) copySlot() {
	p.t.Helper()
	p.await(func() bool {
		p.exec("SELECT pg_log_standby_snapshot()")
		p.follow()
		_, err := p.replica.Exec(p.t.Context(), "SELECT pg_sync_replication_slots()")
		var there bool
		scanned := p.replica.QueryRow(p.t.Context(), "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = $1", p.options.Slot).Scan(&there)
		if !there {
			p.t.Log("no copy of the slot yet", err, scanned)
		}
		return there
	})
}

// promote makes the standby the server of the shop.
func (p *pair) promote() {
	p.t.Helper()
	_ = p.replica.Close(p.t.Context())
	p.at(p.standby.Address)
	p.exec("SELECT pg_promote()")
}

// A fail-over to a standby with a copy of the slot is no gap: changes that are read twice are stale, and
// those committed since are read.
func TestFailOverWithACopyOfTheSlot(t *testing.T) {
	p := newPair(t, "17")
	r := p.start()
	p.exec("UPDATE orders SET v = 2 WHERE id IN (3, 4)") // the copy of the slot is before it
	p.drain(r)
	r.stop()
	p.exec("UPDATE orders SET v = 3 WHERE id = 4; DELETE FROM orders WHERE id = 5")
	p.follow()
	applied := len(p.inbox.applied)
	p.primary.Kill()
	p.promote()
	log := p.watched()
	p.exec("UPDATE orders SET v = 4 WHERE id = 6")
	p.read()
	require.Empty(t, log.events("source.gap"))
	require.Empty(t, log.events("source.snapshot_began"))
	require.Equal(t, p.rows("orders", "id"), p.inbox.docs(t, "orders"))
	require.Equal(t, []string{`orders 4 {"id":4,"v":3}`, "orders 5 deleted", `orders 6 {"id":6,"v":4}`}, p.inbox.applied[applied:])
}

// A fail-over that loses commits that were read is a gap, also when the slot is there: they are undone.
func TestFailOverThatLosesCommits(t *testing.T) {
	p := newPair(t, "18")
	p.standby.Stop()
	r := p.start()
	p.exec("UPDATE orders SET v = 9 WHERE id = 4; DELETE FROM orders WHERE id = 5; INSERT INTO orders VALUES (11, 9)")
	p.drain(r)
	r.stop()
	p.primary.Kill()
	p.standby.Start()
	p.promote()
	log := p.watched()
	p.read()
	require.NotEmpty(t, log.events("source.gap"))
	require.Equal(t, p.rows("orders", "id"), p.inbox.docs(t, "orders"))
}
