package servers

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func postgres(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	return connection
}

func TestPostgresSchemasStayApart(t *testing.T) {
	t.Parallel()
	var schemas []string
	for range 2 {
		url := Postgres(t)
		connection := postgres(t, url)
		defer connection.Close(t.Context())

		// The same name in both: neither may see the other's.
		_, err := connection.Exec(t.Context(), "create table bananas (id text primary key)")
		require.NoError(t, err)
		_, err = connection.Exec(t.Context(), "insert into bananas values ('B-007')")
		require.NoError(t, err)
		var count int
		require.NoError(t, connection.QueryRow(t.Context(), "select count(*) from bananas").Scan(&count))
		require.Equal(t, 1, count)

		var searchPath string
		require.NoError(t, connection.QueryRow(t.Context(), "show search_path").Scan(&searchPath))
		schemas = append(schemas, searchPath)
	}
	require.NotEqual(t, schemas[0], schemas[1])
}

func TestPostgresSchemaIsDroppedAfterTheTest(t *testing.T) {
	t.Parallel()
	admin := PostgresAdminURL(t)
	var schema string
	t.Run("uses one", func(t *testing.T) {
		connection := postgres(t, Postgres(t))
		defer connection.Close(t.Context())
		require.NoError(t, connection.QueryRow(t.Context(), "show search_path").Scan(&schema))
	})
	connection := postgres(t, admin)
	defer connection.Close(t.Context())
	var left int
	require.NoError(t, connection.QueryRow(t.Context(), "select count(*) from pg_namespace where nspname = $1", schema).Scan(&left))
	require.Zero(t, left)
}

func openValkey(t *testing.T, address string) valkey.Client {
	t.Helper()
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, DisableCache: true, DisableRetry: true,
		Dialer: net.Dialer{Timeout: time.Minute}, ConnWriteTimeout: time.Minute})
	require.NoError(t, err)
	return client
}

func TestValkeyKeysAreDeletedAfterTheTest(t *testing.T) {
	t.Parallel()
	address, _ := Valkey(t)
	var key string
	t.Run("uses some", func(t *testing.T) {
		_, prefix := Valkey(t)
		key = prefix + "event"
		client := openValkey(t, address)
		defer client.Close()
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value("1").Build()).Error())
		value, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, "1", value)
	})
	client := openValkey(t, address)
	defer client.Close()
	require.True(t, valkey.IsValkeyNil(client.Do(t.Context(), client.B().Get().Key(key).Build()).Error()))
}

func TestKafkaProducesAndConsumes(t *testing.T) {
	t.Parallel()
	brokers, prefix := Kafka(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	topic, group := prefix+"bananas", prefix+"readers"
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer client.Close()

	_, err = kadm.NewClient(client).CreateTopic(ctx, 2, 1, nil, topic)
	require.NoError(t, err)
	require.NoError(t, client.ProduceSync(ctx, kgo.StringRecord("ripe")).FirstErr())
	var values []string
	for len(values) == 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	require.Equal(t, []string{"ripe"}, values)
	require.NoError(t, client.CommitUncommittedOffsets(ctx))
}

func openClickHouse(t *testing.T, dsn string) clickhouse.Conn {
	t.Helper()
	options, err := clickhouse.ParseDSN(dsn)
	require.NoError(t, err)
	connection, err := clickhouse.Open(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	return connection
}

func TestClickHouseHTTP(t *testing.T) {
	t.Parallel()
	dsn, database := ClickHouseHTTP(t)
	for name, parameters := range map[string]string{"plain": "", "lz4": "?compress=lz4", "gzip": "?compress=gzip"} {
		t.Run(name, func(t *testing.T) {
			connection := openClickHouse(t, dsn+parameters)
			ctx := t.Context()
			require.NoError(t, connection.Exec(ctx, "DROP TABLE IF EXISTS bananas"))
			require.NoError(t, connection.Exec(ctx, `CREATE TABLE bananas (id String, ripeness Nullable(Float64), version UInt64,
				deleted UInt8, at DateTime64(3)) ENGINE = ReplacingMergeTree(version, deleted) ORDER BY id`))

			// The third row of a removes it; the second of b is older than its first.
			at := time.UnixMilli(1_700_000_000_123).UTC()
			half := 0.5
			for _, rows := range [][][]any{
				{{"a", &half, uint64(1), uint8(0), at}, {"b", &half, uint64(5), uint8(0), at}},
				{{"a", nil, uint64(2), uint8(0), at}, {"b", nil, uint64(4), uint8(0), at}},
				{{"a", nil, uint64(3), uint8(1), at}},
			} {
				batch, err := connection.PrepareBatch(ctx, "INSERT INTO bananas (id, ripeness, version, deleted, at)")
				require.NoError(t, err)
				for _, row := range rows {
					require.NoError(t, batch.Append(row...))
				}
				require.NoError(t, batch.Send())
			}

			var got struct {
				id       string
				ripeness *float64
				version  uint64
				at       time.Time
			}
			require.NoError(t, connection.QueryRow(ctx, "SELECT id, ripeness, version, at FROM bananas FINAL").
				Scan(&got.id, &got.ripeness, &got.version, &got.at))
			require.Equal(t, "b", got.id)
			require.Equal(t, &half, got.ripeness)
			require.EqualValues(t, 5, got.version)
			require.True(t, at.Equal(got.at), got.at)

			var current string
			require.NoError(t, connection.QueryRow(ctx, "SELECT currentDatabase()").Scan(&current))
			require.Equal(t, database, current)
			var bound string
			require.NoError(t, connection.QueryRow(clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{"id": "it's"})),
				"SELECT {id:String}").Scan(&bound))
			require.Equal(t, "it's", bound)
		})
	}
}

// The engine takes two line feeds in the text of a statement for the end of the rows: here they are a
// length and the first byte of a text of ten, a text of its own, and both bytes of a number.
func TestClickHouseHTTPTakesRowsThatHoldAnEmptyLine(t *testing.T) {
	t.Parallel()
	dsn, _ := ClickHouseHTTP(t)
	for name, parameters := range map[string]string{"plain": "", "lz4": "?compress=lz4", "gzip": "?compress=gzip"} {
		t.Run(name, func(t *testing.T) {
			connection := openClickHouse(t, dsn+parameters)
			ctx := t.Context()
			require.NoError(t, connection.Exec(ctx, "DROP TABLE IF EXISTS texts"))
			require.NoError(t, connection.Exec(ctx, "CREATE TABLE texts (n UInt16, `a text` String) ENGINE = MergeTree ORDER BY n"))
			texts := []string{"\n23456789A", "\n\n", "unharmed"}
			batch, err := connection.PrepareBatch(ctx, "INSERT INTO texts (n, `a text`) SETTINGS async_insert = 0, insert_null_as_default = 1")
			require.NoError(t, err)
			for i, text := range texts {
				require.NoError(t, batch.Append(uint16(0x0a0a+i), text))
			}
			require.NoError(t, batch.Send())

			var got []string
			require.NoError(t, connection.QueryRow(ctx, "SELECT groupArray(`a text`) FROM (SELECT * FROM texts ORDER BY n)").Scan(&got))
			require.Equal(t, texts, got)
		})
	}
}

func TestClickHouseHTTPGivesTypedExceptions(t *testing.T) {
	t.Parallel()
	dsn, _ := ClickHouseHTTP(t)
	connection := openClickHouse(t, dsn)
	var exception *clickhouse.Exception
	require.ErrorAs(t, connection.Exec(t.Context(), "SELECT * FROM nowhere"), &exception)
	require.EqualValues(t, 60, exception.Code) // UNKNOWN_TABLE

	dsn, _ = ClickHouseHTTP(t)
	connection = openClickHouse(t, dsn+"_absent")
	require.ErrorAs(t, connection.Exec(t.Context(), "SELECT 1"), &exception)
	require.EqualValues(t, 81, exception.Code) // UNKNOWN_DATABASE
}

func TestClickHouseHTTPHonoursSettings(t *testing.T) {
	t.Parallel()
	dsn, _ := ClickHouseHTTP(t)
	connection := openClickHouse(t, dsn)
	ctx := t.Context()
	require.NoError(t, connection.Exec(ctx, `CREATE TABLE log (id UInt64) ENGINE = MergeTree ORDER BY id
		SETTINGS non_replicated_deduplication_window = 100`))
	insert := func(token string, id uint64) {
		ctx := clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{
			"insert_deduplication_token": token, "wait_for_async_insert": 1,
		}))
		batch, err := connection.PrepareBatch(ctx, "INSERT INTO log")
		require.NoError(t, err)
		require.NoError(t, batch.Append(id))
		require.NoError(t, batch.Send())
	}
	insert("first", 1)
	insert("first", 2) // the same token: dropped
	insert("second", 3)
	insert("", 4) // the token before is forgotten
	insert("", 5)
	var ids []uint64
	require.NoError(t, connection.QueryRow(ctx, "SELECT arraySort(groupArray(id)) FROM log").Scan(&ids))
	require.Equal(t, []uint64{1, 3, 4, 5}, ids)
}

func TestClickHouseNative(t *testing.T) {
	t.Parallel()
	dsn, _ := ClickHouseNative(t)
	connection := openClickHouse(t, dsn)
	ctx := t.Context()
	require.NoError(t, connection.Exec(ctx, `CREATE TABLE bananas (id String, ripeness Float64, version UInt64)
		ENGINE = ReplacingMergeTree(version) ORDER BY id`))
	for version, ripeness := range []float64{0.1, 0.2} {
		batch, err := connection.PrepareBatch(ctx, "INSERT INTO bananas (id, ripeness, version)")
		require.NoError(t, err)
		require.NoError(t, batch.Append("a", ripeness, uint64(version)))
		require.NoError(t, batch.Send())
	}
	var ripeness float64
	require.NoError(t, connection.QueryRow(ctx, "SELECT ripeness FROM bananas FINAL").Scan(&ripeness))
	require.Equal(t, 0.2, ripeness)
}
