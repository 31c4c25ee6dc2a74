package servers

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestOwnPostgresKeepsCommitsThroughAKill(t *testing.T) {
	t.Parallel()
	server := StartOwn(t, "postgres")
	connection := postgres(t, server.Address)
	_, err := connection.Exec(t.Context(), "create table bananas (id int)")
	require.NoError(t, err)
	_, err = connection.Exec(t.Context(), "insert into bananas values (1)")
	require.NoError(t, err)

	server.Kill()
	require.Error(t, connection.Ping(t.Context()))
	_, err = pgx.Connect(t.Context(), server.Address)
	require.Error(t, err)

	server.Start()
	connection = postgres(t, server.Address)
	defer connection.Close(t.Context())
	var count int
	require.NoError(t, connection.QueryRow(t.Context(), "select count(*) from bananas").Scan(&count))
	require.Equal(t, 1, count)
}

func TestOwnValkeyCanBePausedAndStopped(t *testing.T) {
	t.Parallel()
	server := StartOwn(t, "valkey")
	client := openValkey(t, server.Address)
	defer client.Close()
	ping := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return client.Do(ctx, client.B().Ping().Build()).Error()
	}
	answers := func() bool { return ping(time.Minute) == nil }
	require.True(t, answers())
	server.Pause()
	require.ErrorIs(t, ping(time.Second), context.DeadlineExceeded)
	server.Resume()
	require.Eventually(t, answers, time.Minute, 10*time.Millisecond)
	server.Stop()
	require.Error(t, ping(time.Minute))
	server.Start()
	require.Eventually(t, answers, time.Minute, 10*time.Millisecond)
}

func TestOwnKafkaKeepsAcknowledgedRecordsThroughAKill(t *testing.T) {
	t.Parallel()
	server := StartOwn(t, "kafka")
	// A client of Kafka retries without end.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Address), kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic("bananas"))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(ctx, kgo.StringRecord("green")).FirstErr())
	server.Kill()
	server.Start()
	require.NoError(t, client.ProduceSync(ctx, kgo.StringRecord("ripe")).FirstErr())

	reader, err := kgo.NewClient(kgo.SeedBrokers(server.Address), kgo.ConsumeTopics("bananas"))
	require.NoError(t, err)
	defer reader.Close()
	var values []string
	for len(values) < 2 {
		fetches := reader.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	require.Equal(t, []string{"green", "ripe"}, values)
}

func TestOwnClickHouseEngineKeepsItsDataThroughAKill(t *testing.T) {
	t.Parallel()
	server := StartOwn(t, "chdb")
	connection := openClickHouse(t, server.Address)
	require.NoError(t, connection.Exec(t.Context(), "CREATE TABLE bananas (id UInt64) ENGINE = MergeTree ORDER BY id"))
	require.NoError(t, connection.Exec(t.Context(), "INSERT INTO bananas VALUES (7)"))
	server.Kill()
	server.Start()
	// A new one: the old connection is closed by now, which it may not have noticed.
	connection = openClickHouse(t, server.Address)
	var id uint64
	require.NoError(t, connection.QueryRow(t.Context(), "SELECT id FROM bananas").Scan(&id))
	require.EqualValues(t, 7, id)
}
