package clickhouse

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/sinks/kind"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// kinds are the shared ones; everything here runs on both kinds.
var kinds = map[string]func(testing.TB) (dsn, database string){
	"current": servers.ClickHouseHTTP,
	"old":     servers.ClickHouseNative,
}

func onBoth(t *testing.T, f func(t *testing.T, dsn, database string)) {
	for name, server := range kinds {
		t.Run(name, func(t *testing.T) {
			dsn, database := server(t)
			f(t, dsn, database)
		})
	}
}

func opened(t testing.TB, o Options) *Sink {
	o.Service = service
	s := newSink(t, o)
	require.NoError(t, s.Open(t.Context()))
	return s
}

func classOf(err error) sinks.Class { return sinks.Classify(err).Class }

func TestNewNamesEveryMistakeAndNoPassword(t *testing.T) {
	_, err := New(Options{
		URL: "clickhouse://u:hunter2@[bad", Table: "t", PartitionBy: "toYYYYMM(changed_at)",
		Columns: config.Columns{{Name: "x", Type: "Int8"}, {Name: "y", Type: "text"}},
	})
	require.Error(t, err)
	for _, part := range []string{"url", "partition_by", "changed_at", "columns[1]"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "hunter2")
}

func TestALingerOfZeroTakesWhatIsThere(t *testing.T) {
	c := &Config{MaxBatch: 1}
	c.URL, c.Table = config.NewSecret("clickhouse://localhost"), "t"
	s, err := c.Make(kind.Env{Service: service})
	require.NoError(t, err)
	require.Zero(t, s.Traits().Linger)
}

func TestTheURLSaysHowManyConnections(t *testing.T) {
	for url, want := range map[string]int{"clickhouse://localhost": 8, "clickhouse://localhost?max_open_conns=3": 3} {
		client, err := (&Options{URL: url, Table: "t", Service: service}).complete()
		require.NoError(t, err)
		require.Equal(t, want, client.MaxOpenConns, url)
	}
}

// https is a connection with TLS, unless the URL itself says otherwise.
func TestHTTPSIsSecure(t *testing.T) {
	for url, unverified := range map[string]bool{
		"https://ch.example:8443/shop": false, "https://ch.example?compress=true": false,
		"clickhouse://ch.example:9440?secure=true": false, "https://ch.example:8443?skip_verify=": true,
	} {
		o, err := parseURL(url)
		require.NoError(t, err, url)
		require.NotNil(t, o.TLS, url)
		require.Equal(t, unverified, o.TLS.InsecureSkipVerify, url)
	}
	_, err := parseURL("https://ch.example?secure=false")
	require.Error(t, err)
}

func TestBeyondKey(t *testing.T) {
	for expression, foreign := range map[string][]string{
		"":                                     nil,
		"tuple()":                              nil,
		"service":                              nil,
		"cityHash64(entity) % 16":              nil,
		"(service, substring(`entity`, 1, 2))": nil,
		"if(service = 'doc', 1, 2)":            nil,
		"toYYYYMM(changed_at)":                 {"changed_at"},
		"(service, is_deleted)":                {"is_deleted"},
	} {
		require.Equal(t, foreign, beyondKey(expression), expression)
	}
}

func TestOpenRefusesWhatDoesNotFit(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn, _ string) {
		const base = "service String, entity String, version UInt64, is_deleted UInt8, key String, changed_at DateTime, synced_at DateTime DEFAULT now()"
		for name, tc := range map[string]struct {
			create  []string
			options Options
			says    []string
		}{
			"missing_and_not_to_be_created": {options: Options{CreateTable: new(false)}, says: []string{"there is no table"}},
			"many_things": {
				create: []string{"CREATE TABLE %s (service String, entity String, version String, is_deleted UInt8, n Int32, d Date, m UInt64 MATERIALIZED 1) " +
					"ENGINE = MergeTree PARTITION BY d ORDER BY (service, d)"},
				options: Options{Columns: config.Columns{{Name: "n", Type: "Int64"}, {Name: "m", Type: "UInt64"}, {Name: "gone", Type: "String"}}},
				says: []string{"engine MergeTree", "sorting key (service, d)", "partition key d depends on d", "column version: has type String",
					"column key: missing", "column n: has type Int32", "column m: missing or computed", "column gone: missing"},
			},
			"replaces_by_time": {
				create: []string{"CREATE TABLE %s (" + base + ", doc String) ENGINE = ReplacingMergeTree(changed_at) ORDER BY (service, entity)"},
				says:   []string{"engine ReplacingMergeTree"},
			},
			"partitions_by_time": {
				create: []string{"CREATE TABLE %s (" + base + ", doc String) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(changed_at) ORDER BY (service, entity)"},
				says:   []string{"depends on changed_at"},
			},
			"a_view_of_other_columns": {
				create: []string{"CREATE TABLE %s (" + base + ", doc String) ENGINE = ReplacingMergeTree(version) ORDER BY (service, entity)",
					"CREATE VIEW %s_current AS SELECT 1 AS entity"},
				says: []string{"lacks", "doc"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				for _, statement := range tc.create {
					if strings.Contains(statement, "ENGINE = MergeTree ") {
						statement = strings.Replace(statement, "MergeTree ", "MergeTree() ", 1)
					}
					execute(t, dsn, fmt.Sprintf(statement, name))
				}
				o := tc.options
				o.URL, o.Service, o.Table = dsn, service, name
				err := newSink(t, o).Open(t.Context())
				require.Equal(t, sinks.Pause, classOf(err), "%v", err)
				for _, part := range tc.says {
					require.ErrorContains(t, err, part)
				}
			})
		}
	})
}

func TestOpenTakesTheTableOfSomebodyElse(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn, database string) {
		execute(t, dsn, "CREATE TABLE own (more UInt8, entity String, service String, `version` UInt64, is_deleted UInt8, key String, "+
			"changed_at DateTime, synced_at DateTime DEFAULT now(), price Decimal64(2)) ENGINE = ReplacingMergeTree(version) "+
			"PARTITION BY cityHash64(entity) % 2 ORDER BY (entity, service)")
		s := opened(t, Options{URL: dsn, Table: database + ".own", Columns: config.Columns{{Name: "price", Path: "n", Type: "Decimal(18,2)"}}})
		require.NoError(t, s.Open(t.Context()), "again")
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1, "x"), retract("b", 2)}))
	})
}

func TestRefusedAsAWhole(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn, database string) {
		t.Run("database", func(t *testing.T) {
			err := newSink(t, Options{URL: dsn, Table: "no_such_database.t", Service: service}).Open(t.Context())
			require.Equal(t, sinks.Pause, classOf(err), "%v", err)
			require.ErrorContains(t, err, "create the database")
		})
		t.Run("another service's change", func(t *testing.T) {
			c := upsert("a", 1, "x")
			c.Service = "other/ripeness@warehouse"
			require.Equal(t, sinks.Pause, classOf(opened(t, Options{URL: dsn, Table: "services"}).Write(t.Context(), []change.Change{c})))
		})
		t.Run("a column is gone", func(t *testing.T) {
			s := opened(t, Options{URL: dsn, Table: "altered", Columns: config.Columns{{Name: "n", Type: "Int64"}}})
			execute(t, dsn, "ALTER TABLE altered DROP COLUMN n")
			err := s.Write(t.Context(), []change.Change{upsert("a", 1, "x")})
			require.Equal(t, sinks.Pause, classOf(err), "%v", err)
		})
		t.Run("not open", func(t *testing.T) {
			s := newSink(t, Options{URL: dsn, Table: "closed", Service: service})
			require.Equal(t, sinks.Retry, classOf(s.Write(t.Context(), []change.Change{upsert("a", 1, "x")})))
			require.Equal(t, sinks.Retry, classOf(s.Scan(t.Context(), "", 1, nil)))
		})
	})
	t.Run("user", func(t *testing.T) {
		dsn, _ := servers.ClickHouseNative(t)
		err := newSink(t, Options{URL: strings.Replace(dsn, "://", "://nobody:hunter2@", 1), Table: "t", Service: service}).Open(t.Context())
		require.Equal(t, sinks.Pause, classOf(err), "%v", err)
		require.NotContains(t, err.Error(), "hunter2")
	})
}

func TestNobodyListens(t *testing.T) {
	for _, scheme := range []string{"clickhouse", "http"} {
		err := newSink(t, Options{URL: scheme + "://u:hunter2@127.0.0.1:1/x", Table: "t", Service: service}).Open(t.Context())
		e := sinks.Classify(err)
		require.Equal(t, sinks.Retry, e.Class)
		require.False(t, e.Ambiguous, "nothing was sent")
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestClassify(t *testing.T) {
	exception := func(code int32, message string) error {
		return fmt.Errorf("send: %w", &clickhouse.Exception{Code: code, Message: message})
	}
	for _, tc := range []struct {
		err   error
		class sinks.Class
		wait  bool
	}{
		{exception(252, "Too many parts (300)"), sinks.Retry, true},
		{exception(252, "Too many partitions for single INSERT block (more than 100)"), sinks.RetryBounded, false},
		{exception(241, "Memory limit exceeded"), sinks.Retry, true},
		{exception(516, "Authentication failed"), sinks.Pause, false},
		{exception(60, "Table does not exist"), sinks.Pause, false},
		{exception(469, "Constraint `c` is violated, doc = 'SECRET'"), sinks.Reject, false},
		{exception(159, "Timeout exceeded: elapsed 2 s"), sinks.RetryBounded, false},
		{exception(241, "(for query) Memory limit exceeded"), sinks.RetryBounded, true},
		{exception(241, "(total) memory limit exceeded"), sinks.Retry, true},
		{exception(4711, "SECRET"), sinks.RetryBounded, false},
		{&clickhouse.HTTPError{StatusCode: 403, Err: errors.New("no")}, sinks.Pause, false},
		{&clickhouse.HTTPError{StatusCode: 413, Err: errors.New("too large")}, sinks.RetryBounded, false},
		{&clickhouse.HTTPError{StatusCode: 502, Err: errors.New("gateway")}, sinks.Retry, false},
		{errors.New("connection reset"), sinks.Retry, false},
	} {
		e := classify("insert", tc.err, true)
		require.Equal(t, tc.class, e.Class, "%v", tc.err)
		require.Equal(t, tc.wait, e.RetryAfter > 0, "%v", tc.err)
		require.Equal(t, e.Class == sinks.Retry || e.Class == sinks.RetryBounded, e.Ambiguous, "%v", tc.err)
		require.NotContains(t, e.Error(), "SECRET")
	}
}

func TestConstraintFailsOneRow(t *testing.T) {
	dsn, _ := servers.ClickHouseHTTP(t)
	o := Options{URL: dsn, Table: "guarded", Service: service}
	s := opened(t, o)
	execute(t, dsn, "ALTER TABLE guarded ADD CONSTRAINT no_seven CHECK entity != 'entity-7'")
	err := s.Write(t.Context(), batchOf(20, 1))
	var failed *sinks.BatchError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Failed, 1)
	require.Equal(t, sinks.Reject, classOf(failed.Failed[7]))
	require.ErrorContains(t, failed.Failed[7], "no_seven")
	require.ErrorContains(t, failed.Failed[7], "is violated at row", "the server's own words")
	require.NotContains(t, failed.Failed[7].Error(), "usual")
	require.Len(t, current(t, o), 19)
}

// A batch that is too much for the user's memory goes through in parts; a document that
// is too much alone fails alone.
func TestMemoryOfTheUser(t *testing.T) {
	dsn, _ := servers.ClickHouseHTTP(t)
	const rows = 8000
	changes := batchOf(rows, 1)
	for i := range changes {
		changes[i].Doc = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat(fmt.Sprintf("%08d", i), 250))
	}
	o := Options{URL: dsn + "?max_memory_usage=8000000", Table: "narrow", Service: service}
	s := opened(t, o)
	require.NoError(t, s.Write(t.Context(), changes[:500]))
	opened := s.session.Load()
	var direct []batch.Row
	for i := range changes {
		c := &changes[i]
		direct = append(direct, batch.Row{Index: i, Change: c, Values: []any{c.Service, c.Entity, uint64(c.Version), uint8(0), c.Key, c.Time, string(c.Doc)}})
	}
	require.ErrorContains(t, s.insert(t.Context(), opened, s.columns(change.Upsert), direct), "code 241", "in one statement")
	require.NoError(t, s.Write(t.Context(), changes))
	require.Len(t, current(t, Options{URL: dsn, Table: o.Table, Service: service}), rows)

	changes = batchOf(100, rows)
	changes[7].Doc = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("0123456789abcdef", 1<<20))
	var failed *sinks.BatchError
	require.ErrorAs(t, s.Write(t.Context(), changes), &failed)
	require.Len(t, failed.Failed, 1)
	require.Equal(t, sinks.RetryBounded, classOf(failed.Failed[7]), "%v", failed.Failed[7])
	require.ErrorContains(t, failed.Failed[7], "emory limit")
}

// A constraint that refuses everything refuses the service, not its changes.
func TestRefusedAlikePauses(t *testing.T) {
	dsn, _ := servers.ClickHouseHTTP(t)
	o := Options{URL: dsn, Table: "altered", Service: service}
	s := opened(t, o)
	execute(t, dsn, "ALTER TABLE altered ADD CONSTRAINT never CHECK version = 0")
	var failed *sinks.BatchError
	require.ErrorAs(t, s.Write(t.Context(), batchOf(batch.MinWhole-1, 1)), &failed, "few may be poison")
	require.Len(t, failed.Failed, batch.MinWhole-1)

	err := s.Write(t.Context(), batchOf(batch.MinWhole, 1))
	require.NotErrorAs(t, err, &failed, "no dead letters: %v", err)
	e := sinks.Classify(err)
	require.Equal(t, sinks.Pause, e.Class)
	require.False(t, e.Ambiguous)
	require.Contains(t, e.Hint, "never")
	require.NotContains(t, err.Error(), "usual")

	execute(t, dsn, "ALTER TABLE altered DROP CONSTRAINT never")
	require.NoError(t, s.Write(t.Context(), batchOf(batch.MinWhole, 1)), "the pause ends by itself")
	require.Len(t, current(t, o), batch.MinWhole)

	execute(t, dsn, "ALTER TABLE altered ADD CONSTRAINT one CHECK entity = 'entity-7'")
	require.ErrorAs(t, s.Write(t.Context(), batchOf(batch.MinWhole, 100)), &failed, "one took effect")
	require.Len(t, failed.Failed, batch.MinWhole-1)
}

func TestTooManyPartitionsAreSplit(t *testing.T) {
	dsn, _ := servers.ClickHouseHTTP(t)
	o := Options{URL: dsn, Table: "scattered", Service: service, PartitionBy: "entity"}
	require.NoError(t, opened(t, o).Write(t.Context(), batchOf(110, 1)))
	require.Len(t, current(t, o), 110)
}

func TestRepeatedBatchAddsNoRows(t *testing.T) {
	dsn, _ := servers.ClickHouseHTTP(t)
	s := opened(t, Options{URL: dsn, Table: "repeated"})
	execute(t, dsn, "SYSTEM STOP MERGES repeated")
	for range 3 {
		require.NoError(t, s.Write(t.Context(), batchOf(10, 1)))
	}
	require.EqualValues(t, 10, count(t, dsn, "SELECT count() FROM repeated"))
	require.NoError(t, s.Write(t.Context(), batchOf(10, 2)), "other changes")
	require.EqualValues(t, 20, count(t, dsn, "SELECT count() FROM repeated"))
}

func TestRowsAreMergedToTheNewest(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn, _ string) {
		o := Options{URL: dsn, Table: "merged", Service: service}
		s := opened(t, o)
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 5, "new"), retract("b", 6)}))
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1, "old"), upsert("b", 2, "old")}))
		before := current(t, o)
		require.Len(t, before, 1)
		require.Equal(t, change.NewVersion(1, 5), before["a"].Version)
		execute(t, dsn, "OPTIMIZE TABLE merged FINAL")
		require.EqualValues(t, 2, count(t, dsn, "SELECT count() FROM merged"), "the retraction stays")
		require.Equal(t, before, current(t, o))
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert("b", 3, "old")}))
		require.Equal(t, before, current(t, o))
	})
}

func TestTimesOfARow(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn, _ string) {
		s := opened(t, Options{URL: dsn, Table: "timed"})
		c := upsert("a", 1, "x")
		c.Time = time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC)
		require.NoError(t, s.Write(t.Context(), []change.Change{c}))
		var changed, synced time.Time
		require.NoError(t, s.session.Load().conn.QueryRow(t.Context(), "SELECT changed_at, synced_at FROM timed").Scan(&changed, &synced))
		require.WithinDuration(t, c.Time, changed, 789*time.Millisecond)
		require.WithinDuration(t, time.Now(), synced, time.Minute)
	})
}

// What an operator is told to run removes that entity and no other.
func TestDeleteStatement(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn, _ string) {
		s := opened(t, Options{URL: dsn, Table: "deleted_from"})
		id := `o'Neill \ ?`
		require.NoError(t, s.Write(t.Context(), []change.Change{upsert(id, 1, "x"), upsert("other", 2, "x")}))
		execute(t, dsn, s.DeleteStatement(id))
		require.Eventually(t, func() bool { // the server does it in the background
			return count(t, dsn, "SELECT count() FROM deleted_from") == 1
		}, time.Minute, 20*time.Millisecond)
	})
}

func BenchmarkWrite(b *testing.B) {
	for name, server := range kinds {
		dsn, _ := server(b)
		for table, columns := range map[string]config.Columns{"whole": nil, "typed": typed} {
			for _, n := range []int{1000, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, table, n), func(b *testing.B) {
					s := opened(b, Options{URL: dsn, Table: table, Columns: columns})
					batches := int64(0)
					for b.Loop() {
						batches++
						require.NoError(b, s.Write(b.Context(), batchOf(n, batches*int64(n))))
					}
					b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				})
			}
		}
	}
}

// A Write is one insert, and one more if it has retractions: a table gets in one
// what all partitions have for it.
func TestAWriteIsOneInsert(t *testing.T) {
	dsn, _ := servers.ClickHouseHTTP(t)
	s := opened(t, Options{URL: dsn, Table: "inserts"})
	execute(t, dsn, "SYSTEM STOP MERGES inserts")
	for round := range int64(3) {
		require.NoError(t, s.Write(t.Context(), batchOf(800, 1000*round+1)))
	}
	const parts = "SELECT count() FROM system.parts WHERE database = currentDatabase() AND table = 'inserts' AND active"
	require.EqualValues(t, 3, count(t, dsn, parts))
	require.NoError(t, s.Write(t.Context(), append(batchOf(800, 5000), retract("gone", 9000), retract("too", 9001))))
	require.EqualValues(t, 5, count(t, dsn, parts))
}
