package outbox_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/sources/outbox"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// A permanent fault ends the start, which names it.
func TestCheckSaysWhatIsWrong(t *testing.T) {
	a := newApp(t)
	a.exec("CREATE VIEW seen AS SELECT id, entity, payload FROM outbox")
	for _, c := range []struct {
		change func(*outbox.Options)
		says   []string
	}{
		{func(o *outbox.Options) { o.Table = "nowhere.outbox" }, []string{"no table", `"nowhere"."outbox"`}},
		{func(o *outbox.Options) { o.Columns.ID, o.Columns.EventID = "nr", "eid" }, []string{`"nr"`, `"eid"`}},
		{func(o *outbox.Options) { o.Columns.Payload = "id" }, []string{"bigint", "no JSON"}},
		{func(o *outbox.Options) { o.Columns.Headers = "op" }, []string{`"op"`, "jsonb"}},
		{func(o *outbox.Options) { o.Table = "seen" }, []string{"xmin"}},
		{func(o *outbox.Options) { o.URL = with(t, o.URL, func(u *url.URL) { u.Path = "/nowhere" }) }, []string{"3D000"}},
	} {
		a.refused(c.change, c.says...)
	}
	require.NoError(t, a.check())
}

func with(t *testing.T, text string, change func(*url.URL)) string {
	u, err := url.Parse(text)
	require.NoError(t, err)
	change(u)
	return u.String()
}

// A role may read and not delete: that is said too, not met with the first row.
func TestCheckSaysWhichRightIsMissing(t *testing.T) {
	a := newApp(t)
	var schema, role string
	require.NoError(t, a.conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	role = schema + "_reader"
	a.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'secret-of-the-reader'")
	t.Cleanup(func() {
		conn := a.connectAgain()
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	a.exec("GRANT USAGE ON SCHEMA " + schema + " TO " + role)
	a.exec("GRANT SELECT ON outbox TO " + role)
	asRole := func(o *outbox.Options) {
		o.URL = with(t, o.URL, func(u *url.URL) { u.User = url.UserPassword(role, "secret-of-the-reader") })
	}
	for _, right := range []string{"UPDATE", "DELETE"} {
		a.refused(asRole, "permission denied")
		a.exec("GRANT " + right + " ON outbox TO " + role)
	}
	require.NoError(t, a.check(asRole), "no more rights are needed")
}

// Ids that are not unique would delete rows that were never handed out.
func TestIdsThatAreNotUniqueDeleteNothing(t *testing.T) {
	a := newApp(t)
	a.exec("ALTER TABLE outbox DROP CONSTRAINT outbox_pkey")
	a.exec(`INSERT INTO outbox (id, entity, payload) VALUES (1, 'A', '1')`)
	tx, err := a.connect().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO outbox (id, entity, payload) VALUES (1, 'B', '1')`)
	require.NoError(t, err)
	r := a.read()
	f := r.next()
	require.NoError(t, tx.Commit(t.Context()))
	f.Ack()
	require.Eventually(t, func() bool { return r.source.Failing() != nil }, patience, time.Millisecond)
	require.ErrorContains(t, r.source.Failing(), "must be unique")
	require.Equal(t, 2, a.count("true"))
}

// The source waits for a database that dies; rows in work are read again.
func TestADatabaseThatIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	server := servers.StartOwn(t, "postgres")
	a := &app{t: t, url: server.Address}
	a.conn = a.connect()
	a.exec(createTable)
	a.write("A", "B")
	r := a.read()
	was := r.next()
	require.Equal(t, "A1 B2", was.rows())
	server.Kill()
	was.Ack()
	require.Eventually(t, func() bool { return r.source.Failing() != nil }, patience, time.Millisecond)
	require.False(t, r.isDrained())
	var setup *outbox.SetupError
	require.NotErrorAs(t, r.source.Failing(), &setup)

	server.Start()
	is := r.next()
	require.Equal(t, "A1 B2", is.rows())
	require.Equal(t, was.Frame.UUID(1), is.Frame.UUID(1))
	is.Ack()
	r.drained()
	require.NoError(t, r.source.Failing())

	// One that hangs does not prevent a stop.
	server.Pause()
	t.Cleanup(server.Resume)
	require.Eventually(t, func() bool { return r.source.Failing() != nil }, patience, time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- r.source.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "Close hangs")
	}
}
