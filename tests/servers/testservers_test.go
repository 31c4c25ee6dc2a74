package servers

import (
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
