package servers

import (
	"net"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
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

func openClickHouse(t *testing.T, dsn string) clickhouse.Conn {
	t.Helper()
	options, err := clickhouse.ParseDSN(dsn)
	require.NoError(t, err)
	connection, err := clickhouse.Open(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	return connection
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
