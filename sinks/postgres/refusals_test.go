package postgres

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func TestRefusedAsAWhole(t *testing.T) {
	admin := servers.Postgres(t)
	parsed, err := url.Parse(admin)
	require.NoError(t, err)
	schema := strings.TrimPrefix(parsed.Query().Get("options"), "-csearch_path=")
	role := schema + "_role"
	execute(t, admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() {
		ctx := context.Background()
		s, err := New(Options{URL: admin, Table: "x", Service: service})
		require.NoError(t, err)
		require.NoError(t, s.Open(ctx))
		_, err = s.pool.Load().Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})

	t.Run("database", func(t *testing.T) {
		other := *parsed
		other.Path = "/no_such_database"
		err := newSink(t, Options{URL: other.String(), Table: "t", Service: service}).Open(t.Context())
		require.Equal(t, sinks.Pause, classOf(err), "%v", err)
		require.False(t, sinks.Classify(err).Ambiguous)
	})
	t.Run("user", func(t *testing.T) {
		other := *parsed
		other.User = url.UserPassword("no_such_role", "hunter2")
		err := newSink(t, Options{URL: other.String(), Table: "t", Service: service}).Open(t.Context())
		require.Equal(t, sinks.Pause, classOf(err), "%v", err)
		require.NotContains(t, err.Error(), "hunter2")
	})
	t.Run("rights", func(t *testing.T) {
		opened(t, Options{URL: admin, Table: "guarded"})
		execute(t, admin, "GRANT USAGE ON SCHEMA "+schema+" TO "+role+"; GRANT SELECT ON guarded, guarded_current TO "+role)
		other := *parsed
		other.User = url.User(role)
		s := opened(t, Options{URL: other.String(), Table: "guarded"})
		err := s.Write(t.Context(), []change.Change{upsert("a", 1, "x")})
		require.Equal(t, sinks.Pause, classOf(err), "%v", err)
		require.ErrorContains(t, err, "grant")
		err = newSink(t, Options{URL: other.String(), Table: "new", Service: service}).Open(t.Context())
		require.Equal(t, sinks.Pause, classOf(err), "%v", err)
	})
	t.Run("another service's change", func(t *testing.T) {
		s := opened(t, Options{URL: admin, Table: "services"})
		c := upsert("a", 1, "x")
		c.Service = "other/ripeness@warehouse"
		require.Equal(t, sinks.Pause, classOf(s.Write(t.Context(), []change.Change{c})))
	})
	t.Run("not open", func(t *testing.T) {
		s := newSink(t, Options{URL: admin, Table: "closed", Service: service})
		require.Equal(t, sinks.Retry, classOf(s.Write(t.Context(), []change.Change{upsert("a", 1, "x")})))
		require.Equal(t, sinks.Retry, classOf(s.Scan(t.Context(), "", 1, nil)))
	})
}

func TestNobodyListens(t *testing.T) {
	err := newSink(t, Options{URL: "postgres://u:hunter2@127.0.0.1:1/x", Table: "t", Service: service}).Open(t.Context())
	e := sinks.Classify(err)
	require.Equal(t, sinks.Retry, e.Class)
	require.False(t, e.Ambiguous, "nothing was sent")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestRefusedRowsSayWhyWithoutTheirValues(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "typed", Columns: config.Columns{
		{Name: "n", Type: "smallint"}, {Name: "when", Type: "timestamptz"}, {Name: "tags", Type: "text[]"},
		{Name: "code", Type: "varchar(3)"}, {Name: "checked", Type: "int"}, {Name: "unique", Type: "int"}, {Name: "parent", Type: "text"},
	}})
	execute(t, address, "ALTER TABLE typed ADD CONSTRAINT positive CHECK (checked > 0)")
	execute(t, address, `CREATE UNIQUE INDEX only_one ON typed ("unique")`)
	execute(t, address, "CREATE TABLE parents (name text PRIMARY KEY); ALTER TABLE typed ADD FOREIGN KEY (parent) REFERENCES parents")

	offset := int64(0)
	withDoc := func(doc string) change.Change {
		offset++
		c := upsert(fmt.Sprint("e", offset), offset, "")
		c.Doc = []byte(doc)
		return c
	}
	for _, tc := range []struct {
		doc, says string
		class     sinks.Class
	}{
		{`{"n":"SECRET"}`, `column "n" smallint`, sinks.Reject},
		{`{"n":7777777}`, `column "n" smallint`, sinks.Reject},
		{`{"n":1.5}`, `column "n" smallint`, sinks.Reject},
		{`{"when":"SECRET \" quote"}`, `column "when" timestamptz`, sinks.Reject},
		{`{"when":"2024-13-45"}`, `column "when" timestamptz`, sinks.Reject},
		{`{"tags":"SECRET"}`, `column "tags" text[]`, sinks.Reject},
		{`{"tags":["a\u0000SECRET"],"n":"SECRET"}`, `column "n" smallint, "tags" text[]`, sinks.Reject},
		{`{"code":"SECRET"}`, "too long", sinks.Reject},
		{`{"checked":-7777777}`, `constraint "positive"`, sinks.Reject},
		{`{"unique":1}`, `constraint "only_one"`, sinks.Reject},
		{`{"parent":"SECRET"}`, "foreign key", sinks.RetryBounded},
	} {
		good := withDoc(`{"n":1,"when":"2024-02-29T12:00:00Z","tags":["a","b,c"],"code":"abc","checked":1}`)
		batch := []change.Change{good, withDoc(tc.doc)}
		if tc.says == `constraint "only_one"` {
			batch[0].Doc = []byte(`{"unique":1}`)
		}
		err := s.Write(t.Context(), batch)
		var failed *sinks.BatchError
		require.ErrorAs(t, err, &failed, tc.doc)
		require.Len(t, failed.Failed, 1, tc.doc)
		require.ErrorContains(t, failed.Failed[1], tc.says)
		require.Equal(t, tc.class, classOf(failed.Failed[1]), "%v", failed.Failed[1])
		require.False(t, sinks.Classify(failed.Failed[1]).Ambiguous)
		require.NotContains(t, err.Error(), "SECRET")
		require.NotContains(t, err.Error(), "7777777")
	}

	long := upsert(strings.Repeat("0123456789abcdef", 1000), 99, "")
	for i := range 400 {
		long.Entity += fmt.Sprint(i * i * 7919)
	}
	err := s.Write(t.Context(), []change.Change{long})
	var failed *sinks.BatchError
	require.ErrorAs(t, err, &failed, "an id that no index takes")
	require.Equal(t, sinks.Reject, classOf(failed.Failed[0]))
}

// Messages are in the server's language, with its quotes.
func TestRefusalsInOtherLanguagesHoldNoValues(t *testing.T) {
	for _, message := range []string{
		`ungültige Eingabesyntax für Typ integer: »canary "7c1f«`, `syntaxe en entrée invalide pour le type integer : « canary »`,
		`la sintaxis de entrada no es válida para tipo integer: «canary»`, `nieprawidłowa składnia wejścia dla typu integer: „canary”`,
	} {
		e := classify("insert", &pgconn.PgError{Code: "22P02", Message: message})
		require.NotContains(t, e.Error(), "canary")
		require.NotContains(t, e.Error(), "7c1f")
		require.Contains(t, e.Error(), "integer")
	}
}

// No type of column takes it; the hint says what helps.
func TestATextWithNulIsRefused(t *testing.T) {
	address := servers.Postgres(t)
	c := upsert("a", 1, "")
	c.Doc = []byte(`{"text":"a\u0000b","n":1}`)
	for table, columns := range map[string]config.Columns{
		"whole": nil, "spread": {{Name: "text", Type: "json"}},
	} {
		err := opened(t, Options{URL: address, Table: table, Columns: columns}).Write(t.Context(), []change.Change{c})
		var failed *sinks.BatchError
		require.ErrorAs(t, err, &failed)
		require.ErrorContains(t, failed.Failed[0], `\u0000`)
		require.ErrorContains(t, failed.Failed[0], "leave it out of the projection, or of columns")
	}
	s := opened(t, Options{URL: address, Table: "without", Columns: config.Columns{{Name: "n", Type: "int"}}})
	require.NoError(t, s.Write(t.Context(), []change.Change{c}))
}

func TestServerErrorsThatNobodyKnowsAreBounded(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "guarded"})
	execute(t, address, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.entity = 'entity-7' THEN RAISE EXCEPTION 'no "%", %', NEW.entity, NEW.doc; END IF; RETURN NEW; END $$`)
	execute(t, address, "CREATE TRIGGER refuse BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION refuse()")
	err := s.Write(t.Context(), batchOf(20, 1))
	var failed *sinks.BatchError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, sinks.RetryBounded, classOf(failed.Failed[7]))
	require.NotContains(t, failed.Failed[7].Error(), "usual")
	require.Len(t, failed.Failed, 1)

	execute(t, address, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
	err = s.Write(t.Context(), batchOf(1000, 100))
	require.NotErrorAs(t, err, &failed, "the search for rows goes on for ever: %v", err)
	require.Equal(t, sinks.RetryBounded, classOf(err))
}

// A constraint or column added after Open refuses the service, not its changes.
func TestRefusedAlikePauses(t *testing.T) {
	address := servers.Postgres(t)
	for name, tc := range map[string]struct{ alter, undo, hint string }{
		"not null": {"ALTER TABLE altered ADD more int NOT NULL", "ALTER TABLE altered DROP more", `column "more"`},
		"check":    {"ALTER TABLE altered ADD CONSTRAINT never CHECK (version < 0)", "ALTER TABLE altered DROP CONSTRAINT never", `constraint "never"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, Options{URL: address, Table: "altered", Columns: config.Columns{{Name: "n", Type: "int"}}})
			execute(t, address, "TRUNCATE altered")
			execute(t, address, tc.alter)
			err := s.Write(t.Context(), batchOf(batch.MinWhole, 1))
			var failed *sinks.BatchError
			require.NotErrorAs(t, err, &failed, "no dead letters: %v", err)
			e := sinks.Classify(err)
			require.Equal(t, sinks.Pause, e.Class)
			require.False(t, e.Ambiguous)
			require.Contains(t, e.Hint, tc.hint)

			require.ErrorAs(t, s.Write(t.Context(), batchOf(batch.MinWhole-1, 1)), &failed, "few may be poison")
			require.Len(t, failed.Failed, batch.MinWhole-1)
			execute(t, address, tc.undo)
			require.NoError(t, s.Write(t.Context(), batchOf(batch.MinWhole, 1)), "the pause ends by itself")
		})
	}
}

func TestRefusedInPartOrForSeveralReasonsIsNoPause(t *testing.T) {
	address := servers.Postgres(t)
	s := opened(t, Options{URL: address, Table: "mixed", Columns: config.Columns{{Name: "n", Type: "int"}}})
	execute(t, address, `ALTER TABLE mixed ADD CONSTRAINT one CHECK (n <> 1), ADD CONSTRAINT two CHECK (n <> 2)`)
	changes := batchOf(batch.MinWhole+1, 1)
	for _, other := range []string{`{"n":2}`, `{"n":3}`} {
		for i := range changes {
			changes[i].Doc = []byte(`{"n":1}`)
		}
		changes[7].Doc = []byte(other)
		var failed *sinks.BatchError
		require.ErrorAs(t, s.Write(t.Context(), changes), &failed, other)
		require.GreaterOrEqual(t, len(failed.Failed), batch.MinWhole, other)
	}
}
