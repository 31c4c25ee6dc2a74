package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/valkey-io/valkey-go"

	"github.com/seed-86dfc502/weir/internal/wait"
)

// PostgresAdminURL returns the URL of the shared PostgreSQL as its superuser, without a schema of the
// test's own. Use it to look at the server, not to make tables.
func PostgresAdminURL(t testing.TB) string {
	t.Helper()
	return lookup(t, "WEIR_TEST_POSTGRES_URL")
}

// Postgres returns a URL of the shared PostgreSQL whose search_path is one empty schema of this test's
// own. The schema is dropped after the test, which must have closed its connections by then.
func Postgres(t testing.TB) string {
	t.Helper()
	admin := PostgresAdminURL(t)
	schema := uniqueName()
	run := func(statement string) func(context.Context) error {
		return func(ctx context.Context) error {
			connection, err := pgx.Connect(ctx, admin)
			if err != nil {
				return err
			}
			defer connection.Close(ctx)
			_, err = connection.Exec(ctx, statement)
			return err
		}
	}
	setup(t, "create schema", run("create schema "+schema))
	cleanup(t, "drop schema", run("drop schema "+schema+" cascade"))

	own, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	query := own.Query()
	query.Set("options", "-csearch_path="+schema)
	own.RawQuery = query.Encode()
	return own.String()
}

// Valkey returns the host:port of the shared Valkey and a prefix for this test's keys. The keys under
// the prefix are deleted after the test.
func Valkey(t testing.TB) (address, prefix string) {
	t.Helper()
	address = lookup(t, "WEIR_TEST_VALKEY_ADDR")
	prefix = uniqueName() + ":"
	cleanup(t, "delete keys", func(ctx context.Context) error {
		client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, DisableCache: true,
			Dialer: net.Dialer{Timeout: setupTimeout}})
		if err != nil {
			return err
		}
		defer client.Close()
		for cursor := uint64(0); ; {
			page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
			if err != nil {
				return err
			}
			if len(page.Elements) > 0 {
				if err := client.Do(ctx, client.B().Unlink().Key(page.Elements...).Build()).Error(); err != nil {
					return err
				}
			}
			if cursor = page.Cursor; cursor == 0 {
				return nil
			}
		}
	})
	return address, prefix
}

// Kafka returns the brokers of the shared Kafka and a prefix for the names of this test's topics,
// groups and transactional ids. Topics and groups under the prefix are deleted after the test; the
// consumers of a group must have left it by then, or their session must end soon.
func Kafka(t testing.TB) (brokers []string, prefix string) {
	t.Helper()
	brokers = strings.Split(lookup(t, "WEIR_TEST_KAFKA_BROKERS"), ",")
	prefix = uniqueName() + "."
	cleanup(t, "delete topics and groups", func(ctx context.Context) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
		if err != nil {
			return err
		}
		defer client.Close()
		admin := kadm.NewClient(client)
		others := func(name string) bool { return !strings.HasPrefix(name, prefix) }

		admin.SetTimeoutMillis(int32(setupTimeout.Milliseconds()))

		groups, err := admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		if err := deleteGroups(ctx, admin, slices.DeleteFunc(groups.Groups(), others)); err != nil {
			return err
		}
		topics, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		names := slices.DeleteFunc(topics.Names(), others)
		if len(names) == 0 {
			return nil
		}
		deleted, err := admin.DeleteTopics(ctx, names...)
		if err != nil {
			return err
		}
		for name, d := range deleted {
			// Topics that the test itself deleted may be listed a moment longer.
			if d.Err != nil && !errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
				return fmt.Errorf("topic %s: %w", name, d.Err)
			}
		}
		return nil
	})
	return brokers, prefix
}

// deleteGroups waits for members whose leave the coordinator has not seen: those of a process that
// was killed, or whose connection broke at the end.
func deleteGroups(ctx context.Context, admin *kadm.Client, groups []string) error {
	for len(groups) > 0 {
		deleted, err := admin.DeleteGroups(ctx, groups...)
		if err != nil {
			return err
		}
		groups = nil
		for name, d := range deleted {
			switch {
			case d.Err == nil, errors.Is(d.Err, kerr.GroupIDNotFound):
			case errors.Is(d.Err, kerr.NonEmptyGroup):
				groups = append(groups, name)
			default:
				return fmt.Errorf("group %s: %w", name, d.Err)
			}
		}
		if len(groups) > 0 && !wait.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("groups %v still have members: %w", groups, ctx.Err())
		}
	}
	return nil
}

// ClickHouseHTTP returns the DSN (http://host:port/database) of a current ClickHouse engine, for the
// HTTP protocol, and the name of an empty database of this test's own, which the DSN selects and
// which is dropped after the test. It runs one statement at a time.
func ClickHouseHTTP(t testing.TB) (dsn, database string) {
	t.Helper()
	return clickHouseDatabase(t, lookup(t, "WEIR_TEST_CLICKHOUSE_HTTP_URL"))
}

// ClickHouseNative is ClickHouseHTTP for the native protocol (clickhouse://host:port/database), on a
// complete but old server: it has ReplacingMergeTree(version) and FINAL, but no is_deleted column, no
// DateTime64 and no asynchronous inserts.
func ClickHouseNative(t testing.TB) (dsn, database string) {
	t.Helper()
	return clickHouseDatabase(t, "clickhouse://"+lookup(t, "WEIR_TEST_CLICKHOUSE_NATIVE_ADDR"))
}

func clickHouseDatabase(t testing.TB, server string) (dsn, database string) {
	t.Helper()
	database = uniqueName()
	run := func(statement string) func(context.Context) error {
		return func(ctx context.Context) error {
			options, err := clickhouse.ParseDSN(server)
			if err != nil {
				return err
			}
			connection, err := clickhouse.Open(options)
			if err != nil {
				return err
			}
			defer connection.Close()
			return connection.Exec(ctx, statement)
		}
	}
	setup(t, "create database", run("CREATE DATABASE "+database))
	cleanup(t, "drop database", run("DROP DATABASE "+database))
	return server + "/" + database, database
}
