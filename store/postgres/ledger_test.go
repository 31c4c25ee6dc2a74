package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// ordinary returns a URL of a fresh schema as a role that is no superuser, and
// owns the tables that it makes.
func ordinary(t testing.TB) string {
	t.Helper()
	admin := servers.Postgres(t)
	u, err := url.Parse(admin)
	require.NoError(t, err)
	schema := u.Query().Get("options")[len("-csearch_path="):]
	role := schema + "_role"
	conn, err := pgx.Connect(t.Context(), admin)
	require.NoError(t, err)
	exec := func(ctx context.Context, statement string) {
		_, err := conn.Exec(ctx, statement)
		require.NoError(t, err)
	}
	exec(t.Context(), "CREATE ROLE "+role+" LOGIN NOSUPERUSER NOBYPASSRLS")
	t.Cleanup(func() {
		ctx := context.Background()
		exec(ctx, "DROP OWNED BY "+role+" CASCADE")
		exec(ctx, "DROP ROLE "+role)
		require.NoError(t, conn.Close(ctx))
	})
	exec(t.Context(), "GRANT USAGE, CREATE ON SCHEMA "+schema+" TO "+role)
	u.User = url.User(role)
	return u.String()
}

// ledger opens a handle on fresh tables as an ordinary role.
func ledger(t testing.TB) (*Store, string) {
	t.Helper()
	url := ordinary(t)
	s := handle(t, url)
	require.NoError(t, s.Migrate(t.Context()))
	return s, url
}

// runAs runs a statement under a setting and returns how many rows it reached.
func runAs(t testing.TB, s *Store, setting, value, statement string, args ...any) int64 {
	t.Helper()
	var n int64
	require.NoError(t, s.inTx(t.Context(), "test", func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT set_config($1, $2, true)`, setting, value); err != nil {
			return err
		}
		tag, err := tx.Exec(t.Context(), statement, args...)
		n = tag.RowsAffected()
		return err
	}))
	return n
}

// The role is that of production: also the pipeline's own statements must get
// by with the rows that the policies show them.
func TestLedgerConformance(t *testing.T) {
	_, url := ledger(t)
	open := sharing(url)
	storetest.RunLedger(t, func(t *testing.T) (storetest.Operated, storetest.Operated, func(string, string, time.Duration)) {
		a, b := open(t)
		return a, b, func(tenant, key string, by time.Duration) {
			n := runAs(t, a, "weir.pipeline", "on",
				`UPDATE ledger SET made_at = made_at - $3::int8 * interval '1 microsecond' WHERE tenant = $1 AND key = $2`, tenant, key, by.Microseconds())
			require.EqualValues(t, 1, n)
		}
	})
}

func someIntent(key string) []store.ClaimRequest {
	return []store.ClaimRequest{{Key: key, Fingerprint: [32]byte{1}}}
}

func start(t testing.TB, s *Store, tenant, key string) store.ClaimID {
	t.Helper()
	got, err := s.BeginClaims(t.Context(), tenant, someIntent(key), 24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, store.ClaimOpen, got[0].State)
	return got[0].ID
}

// I11: the database itself keeps tenants apart. The mistake that this catches: a
// statement without a tenant in its predicate reaches all tenants' rows, the
// owner of the tables being above the policies.
func TestRowLevelSecurityHoldsForStatementsWithoutPredicate(t *testing.T) {
	s, _ := ledger(t)
	mine, others := start(t, s, "acme", "k1"), start(t, s, "globex", "k2")
	start(t, s, "globex", "k3")
	for n, tenant := range []string{"", "acme", "globex", "globex"} {
		_, err := s.OpenJob(t.Context(), store.Job{Tenant: tenant, Kind: "import", Key: fmt.Sprint(n)})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		setting, value string
		rows           int64
	}{
		{"weir.tenant", "acme", 1}, {"weir.tenant", "globex", 2}, {"weir.tenant", "nobody", 0}, {"weir.tenant", "", 0},
		{"weir.pipeline", "off", 0}, {"weir.pipeline", "on", 3},
	} {
		assert.Equal(t, c.rows, runAs(t, s, c.setting, c.value, `SELECT * FROM ledger`), c)
		assert.Equal(t, c.rows, runAs(t, s, c.setting, c.value, `UPDATE ledger SET made_at = made_at`), c)
		assert.Equal(t, c.rows+1, runAs(t, s, c.setting, c.value, `SELECT FROM jobs`), c)
		assert.Equal(t, c.rows+1, runAs(t, s, c.setting, c.value, `UPDATE jobs SET actor = actor`), c)
	}
	assert.Zero(t, runAs(t, s, "weir.tenant", "acme", `DELETE FROM ledger WHERE tenant = 'globex'`))
	assert.Zero(t, runAs(t, s, "weir.tenant", "acme", `UPDATE ledger SET body = 'mine' WHERE id = $1`, [16]byte(others)))
	assert.EqualValues(t, 1, runAs(t, s, "weir.tenant", "acme", `DELETE FROM ledger`))
	assert.Zero(t, runAs(t, s, "weir.pipeline", "on", `SELECT * FROM ledger WHERE tenant = 'acme'`))

	asAcme := func(statement string, args ...any) error {
		return s.inTx(t.Context(), "test", func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), sqlTenant, "acme"); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), statement, args...)
			return err
		})
	}
	const into = `INSERT INTO ledger (month, tenant, key, id, fingerprint, made_at) VALUES ($1, $2, 'k9', $3, '', now())`
	require.NoError(t, asAcme(into, mine.Month(), "acme", [16]byte(mine)))
	require.ErrorContains(t, asAcme(into, mine.Month(), "globex", [16]byte(mine)), "row-level security")
	require.ErrorContains(t, asAcme(`UPDATE jobs SET tenant = 'globex'`), "row-level security")

	// A partition by itself belongs to no tenant, and the decided claims are the pipeline's.
	leaf := pgx.Identifier{"ledger" + mine.Month().Format("_2006_01")}.Sanitize()
	runAs(t, s, "weir.pipeline", "on", `INSERT INTO ledger_decided (month, id, version) VALUES ($1, $2, 1)`, mine.Month(), [16]byte(mine))
	for _, c := range [][3]string{{"weir.pipeline", "on", leaf}, {"weir.tenant", "globex", leaf}, {"weir.tenant", "acme", "ledger_decided"}} {
		assert.Zero(t, runAs(t, s, c[0], c[1], `SELECT * FROM `+c[2]), c)
		assert.Zero(t, runAs(t, s, c[0], c[1], `DELETE FROM `+c[2]), c)
	}
}

// A setting ends with its transaction: the next user of a connection of the
// pool has none.
func TestTenantEndsWithTheTransaction(t *testing.T) {
	s, url := ledger(t)
	one, err := Open(t.Context(), Options{URL: url, MaxConns: minConns})
	require.NoError(t, err)
	defer func() { require.NoError(t, one.Close()) }()
	for range 5 {
		start(t, one, "acme", fmt.Sprint("k", time.Now().UnixNano()))
	}
	var seen int
	conns := []*Store{one, s}
	for _, c := range conns {
		require.NoError(t, c.pool.QueryRow(t.Context(), `SELECT count(*) FROM ledger`).Scan(&seen))
		require.Zero(t, seen)
	}
}

// lastMonth makes the ledger one in which this month was not opened yet.
func lastMonth(t testing.TB, s *Store) (first time.Time) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.pool.QueryRow(ctx, `SELECT (`+thisMonth+` - interval '1 month')::date`).Scan(&first))
	_, err := s.pool.Exec(ctx, `SELECT weir_ledger_month($1)`, first)
	require.NoError(t, err)
	return first.UTC()
}

// A transaction that claims a key in the last moment of a month is still under
// way when others claim it in the first moment of the next one. The mistake that
// this catches: a key is unique within its month only.
func TestAKeyIsClaimedOnceWhereAMonthBegins(t *testing.T) {
	s, url := ledger(t)
	other := handle(t, url)
	ctx := t.Context()
	month := lastMonth(t, s)

	// The late one, as insertClaims does it, cut off before its commit.
	late, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = late.Rollback(ctx) }()
	id := store.ClaimID{0x01, 0x9a, 6: 0x70, 8: 0x80}
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{sqlTenant, []any{"acme"}}, {sqlLedgerShared, nil},
		{`INSERT INTO ledger (month, tenant, key, id, fingerprint, made_at) VALUES ($1, 'acme', 'k', $2, $3, now())`,
			[]any{month, [16]byte(id), someIntent("k")[0].Fingerprint[:]}},
	} {
		_, err := late.Exec(ctx, q.sql, q.args...)
		require.NoError(t, err)
	}

	const callers = 16
	got := make([]store.ClaimResult, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			answers, err := other.BeginClaims(ctx, "acme", someIntent("k"), 60*24*time.Hour)
			if assert.NoError(t, err) {
				got[i] = answers[0]
			}
		})
	}
	require.Eventually(t, func() bool {
		var waiting int
		err := s.pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND mode = 'ExclusiveLock'
			AND objid = 'ledger'::regclass::oid`).Scan(&waiting)
		return err == nil && waiting > 0
	}, testPatience, testPoll, "the month is opened when nobody writes to the one before")
	require.NoError(t, late.Commit(ctx))
	group.Wait()
	for _, g := range got {
		assert.Equal(t, id, g.ID)
	}
	fresh := start(t, other, "acme", "another")
	assert.Equal(t, month.AddDate(0, 1, 0), fresh.Month())
	stats, err := s.LedgerStats(ctx)
	require.NoError(t, err)
	assert.Equal(t, []any{month, int64(2)}, []any{stats.OldestMonth, stats.Held})

	// Once it is over its time it is new, in the month that is open.
	answers, err := other.BeginClaims(ctx, "acme", someIntent("k"), time.Nanosecond)
	require.NoError(t, err)
	assert.Equal(t, store.ClaimOpen, answers[0].State)
	assert.Equal(t, month.AddDate(0, 1, 0), answers[0].ID.Month())
	again, err := s.BeginClaims(ctx, "acme", someIntent("k"), 60*24*time.Hour)
	require.NoError(t, err)
	assert.Equal(t, answers[0].ID, again[0].ID, "the newest of the two")
}

// I2: a decision about a claim of the month before is under way when another
// one, of another partition, decides about the same key in this month. The mistake
// that this catches: a key has its effect once within a month only.
func TestAKeyHasItsEffectOnceWhereAMonthBegins(t *testing.T) {
	s, url := ledger(t)
	other := handle(t, url)
	ctx := t.Context()
	month := lastMonth(t, s)
	revision, err := s.Activate(ctx, []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	first := store.Decided{ID: store.ClaimID{0x01, 0x9a, 6: 0x70, 8: 0x80}, Version: 7, Use: store.Use{Key: store.DigestKey("acme", "k"), Content: [8]byte{1}}}
	second := store.Decided{ID: store.ClaimID{0x01, 0x9b, 6: 0x70, 8: 0x80}, Version: 8, Use: store.Use{Key: first.Key, Content: [8]byte{2}}}

	// The late one, as a decision does it, cut off before its commit.
	late, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = late.Rollback(ctx) }()
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{sqlPipeline, nil}, {sqlLedgerShared, nil},
		{`INSERT INTO ledger_decided (month, id, version, key, content) VALUES ($1, $2, 7, $3, $4)`, []any{month, [16]byte(first.ID), [16]byte(first.Key), first.Content[:]}},
	} {
		_, err := late.Exec(ctx, q.sql, q.args...)
		require.NoError(t, err)
	}
	d := store.Decision{Revision: revision.Number, Claims: []store.ClaimID{second.ID}, Keys: []store.KeyDigest{second.Key}}
	done := make(chan error, 1)
	go func() {
		err := other.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
			assert.Equal(t, map[store.KeyDigest]store.Decided{first.Key: first}, loaded.Uses)
			return store.Outcome{Claims: []store.Decided{second}}, nil
		})
		done <- err
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := s.pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND mode = 'ExclusiveLock'
			AND objid = 'ledger'::regclass::oid`).Scan(&waiting)
		return err == nil && waiting > 0
	}, testPatience, testPoll, "this month is opened when nobody decides in the one before")
	require.NoError(t, late.Commit(ctx))
	require.NoError(t, <-done)
	var at time.Time
	require.NoError(t, other.inTx(ctx, "test", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlPipeline); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT month FROM ledger_decided WHERE key = $1`, [16]byte(second.Key)).Scan(&at)
	}))
	require.Equal(t, month.AddDate(0, 1, 0), at.UTC(), "the newer one has the key, in the month that is open")
}

// Many callers find the month over at the same time, with keys of their own and
// a common one.
func TestAMonthIsOpenedByWhoeverIsFirst(t *testing.T) {
	s, url := ledger(t)
	month := lastMonth(t, s)
	other := handle(t, url)
	const callers = 16
	var common sync.Map // ids
	var group sync.WaitGroup
	for i := range callers {
		from := s
		if i%2 == 1 {
			from = other
		}
		group.Go(func() {
			intents := append(someIntent("common"), someIntent(fmt.Sprint("own ", i))...)
			got, err := from.BeginClaims(t.Context(), "acme", intents, 24*time.Hour)
			if assert.NoError(t, err) {
				common.Store(got[0].ID, true)
				assert.Equal(t, store.ClaimOpen, got[1].State)
				assert.Equal(t, month.AddDate(0, 1, 0), got[1].ID.Month())
			}
		})
	}
	group.Wait()
	n := 0
	for range common.Range {
		n++
	}
	assert.Equal(t, 1, n)
}

// A database's clock that went back behind the begin of the open month changes
// nothing about uniqueness.
func TestAClockThatWentBackDoesNotReopenAMonth(t *testing.T) {
	s, _ := ledger(t)
	ctx := t.Context()
	lastMonth(t, s)
	var next time.Time
	require.NoError(t, s.pool.QueryRow(ctx, `SELECT (`+thisMonth+` + interval '1 month')::date`).Scan(&next))
	_, err := s.pool.Exec(ctx, `SELECT weir_ledger_month($1)`, next)
	require.NoError(t, err)
	id := start(t, s, "acme", "k")
	assert.Equal(t, next.UTC(), id.Made(), "the first moment of the month that was open already")
	got, err := s.BeginClaims(ctx, "acme", someIntent("k"), 24*time.Hour)
	require.NoError(t, err)
	assert.Equal(t, id, got[0].ID)
	answers, err := s.CompleteClaims(ctx, "acme", []store.Completion{{ID: id, Response: store.Response{Status: 202, Body: []byte("{}")}}})
	require.NoError(t, err)
	assert.Equal(t, 202, answers[0].Status)
}

// A replay reads and nothing else: no row is written or locked for it.
func TestReplaysWriteNothing(t *testing.T) {
	s, _ := ledger(t)
	ctx := t.Context()
	id := start(t, s, "acme", "k")
	_, err := s.CompleteClaims(ctx, "acme", []store.Completion{{ID: id, Response: store.Response{Status: 202, Body: []byte("{}")}}})
	require.NoError(t, err)
	tuple := func() (place string) {
		require.NoError(t, s.inTx(ctx, "test", func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, sqlPipeline); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `SELECT concat_ws(' ', ctid, xmin, xmax) FROM ledger WHERE key = 'k'`).Scan(&place)
		}))
		return place
	}
	before := tuple()
	for range 3 {
		got, err := s.BeginClaims(ctx, "acme", someIntent("k"), 24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, store.ClaimDone, got[0].State)
	}
	assert.Equal(t, before, tuple())
}

// The server says on the first connection whether tenants are kept apart by it.
func TestARoleAboveThePoliciesIsWarnedAboutOnce(t *testing.T) {
	for name, c := range map[string]struct {
		url      string
		warnings int
	}{"superuser": {servers.Postgres(t), 1}, "ordinary": {ordinary(t), 0}} {
		var log bytes.Buffer
		s, err := Open(t.Context(), Options{URL: c.url, MaxConns: 4, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		a, err := s.pool.Acquire(t.Context())
		require.NoError(t, err)
		b, err := s.pool.Acquire(t.Context()) // a second connection
		require.NoError(t, err)
		a.Release()
		b.Release()
		require.NoError(t, s.Close())
		assert.Equal(t, c.warnings, bytes.Count(log.Bytes(), []byte("row-level security")), name)
	}
}

// A user who may set weir.pipeline, as all may, and has rights on the tables
// is named at the start.
func TestRolesThatReachAllTenantsAreNamed(t *testing.T) {
	_, own := ledger(t)
	other, err := url.Parse(ordinary(t)) // of another schema
	require.NoError(t, err)
	otherRole := other.User.Username()
	warned := func() string {
		var log bytes.Buffer
		s, err := Open(t.Context(), Options{URL: own, MaxConns: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		c, err := s.pool.Acquire(t.Context())
		require.NoError(t, err)
		c.Release()
		require.NoError(t, s.Close())
		return log.String()
	}
	require.NotContains(t, warned(), otherRole)
	conn, err := pgx.Connect(t.Context(), own)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "GRANT SELECT ON jobs TO "+otherRole)
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
	text := warned()
	require.Equal(t, 1, strings.Count(text, "weir.pipeline"), text)
	require.Contains(t, text, otherRole)
}

// The month ends between looking for a key that is over its time and claiming it
// anew. The mistake that this catches: the claim's id says another month than it
// row does, and its response is never stored.
func TestAKeyIsNotClaimedAnewInAMonthThatIsOver(t *testing.T) {
	s, _ := ledger(t)
	ctx := t.Context()
	month := lastMonth(t, s)
	id := store.ClaimID{0x01, 0x9a, 6: 0x70, 8: 0x80}
	fingerprint := someIntent("k")[0].Fingerprint
	runAs(t, s, "weir.tenant", "acme", `INSERT INTO ledger (month, tenant, key, id, fingerprint, made_at)
		VALUES ($1::date, 'acme', 'k', $2, $3, $1::date)`, month, [16]byte(id), fingerprint[:])
	found := []*pendingClaim{{ClaimRequest: someIntent("k")[0], random: bytes.Repeat([]byte{0x81}, 10), row: &store.ClaimRow{ID: id}, month: month}}
	require.NoError(t, s.replaceClaims(ctx, "acme", found))
	require.EqualValues(t, 1, runAs(t, s, "weir.tenant", "acme", `SELECT FROM ledger WHERE id = $1`, [16]byte(id)), "it is as it was")
	got, err := s.BeginClaims(ctx, "acme", someIntent("k"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, store.ClaimOpen, got[0].State)
	assert.Equal(t, month.AddDate(0, 1, 0), got[0].ID.Month())
	_, err = s.CompleteClaims(ctx, "acme", []store.Completion{{ID: got[0].ID, Response: store.Response{Status: 202, Body: []byte("{}")}}})
	require.NoError(t, err)
	again, err := s.BeginClaims(ctx, "acme", someIntent("k"), time.Hour)
	require.NoError(t, err)
	assert.Equal(t, store.ClaimDone, again[0].State)
}

// I1: the mistake that this catches: to open a new inbox every claim was touched in
// one statement, which with a grown ledger took longer than any start waits.
func TestANewInboxTouchesNoClaim(t *testing.T) {
	s, url := ledger(t)
	_, err := s.ResolveInbox(t.Context(), "inbox", "first", 1, nil)
	require.NoError(t, err)
	id := start(t, s, "acme", "k1")
	_, err = s.CompleteClaims(t.Context(), "acme", []store.Completion{{ID: id, Response: store.Response{Status: 202}}})
	require.NoError(t, err)
	held, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close(context.Background())) }()
	for _, statement := range []string{"BEGIN", `SELECT set_config('weir.pipeline', 'on', true)`, `SELECT FROM ledger FOR UPDATE`} {
		_, err := held.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	_, err = s.ResolveInbox(ctx, "inbox", "second", 1, nil)
	require.NoError(t, err, "it waits for nobody's claim")
}
