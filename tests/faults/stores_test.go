package faults

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// clickhouseTargets are faults of tables in ClickHouse.
func clickhouseTargets(t *testing.T) []fault {
	dsn, database := servers.ClickHouseNative(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	table := func(url, rest string) string {
		return fmt.Sprintf("{clickhouse: {url: %q, insecure: true, linger: 1ms, %s}, retry: {min_backoff: 50ms, max_backoff: 2s}}", url, rest)
	}
	at := func(user, database string) string { return "clickhouse://" + user + u.Host + "/" + database }
	return []fault{
		{name: "chUser", yaml: table(at("nobody:x@", database), "table: t"), why: "nobody|Authentication", do: "correct user and password|correct the user"},
		{name: "chPassword", yaml: table(at("default:wrong@", database), "table: t2"), why: "(?i)password|Authentication", do: "password"},
		{name: "chDatabase", yaml: table(at("", "missing"), "table: t"), why: "(?i)missing", do: "create the database"},
		{name: "chTable", yaml: table(dsn, "table: missing, create: false"), why: "missing", do: "create it|create the table"},
		{name: "chRefused", yaml: table("clickhouse://"+harness.FreeAddress(t)+"/x", "table: t"), why: "refused", do: "start it, or correct its host"},
		{name: "chName", yaml: table("clickhouse://ch.invalid:9000/x", "table: t"), why: "no such host|resolve", do: "correct the host name"},
		{name: "chPort", yaml: table("clickhouse://"+speaks(t, "HTTP/1.1 400 Bad Request\r\n\r\n")+"/x", "table: t"), why: ".", do: "port|target"},
		{name: "chHTTP", yaml: table(answers(t, 502, "bad gateway"), "table: t"), why: "502|gateway", do: "target|server"},
	}
}

// kafkaTargets are faults of topics.
func kafkaTargets(t *testing.T) []fault {
	brokers, prefix := servers.Kafka(t)
	topic := func(broker, name string) string {
		return fmt.Sprintf("{kafka: {brokers: [%q], insecure: true, topic: %q}, retry: {min_backoff: 50ms, max_backoff: 2s}}", broker, name)
	}
	return []fault{
		{name: "kTopic", yaml: topic(brokers[0], prefix+"missing"), why: "UNKNOWN_TOPIC|does not exist|not exist", do: "create the topic"},
		{name: "kRefused", yaml: topic(harness.FreeAddress(t), prefix+"x"), why: "refused", do: "start it, or correct its host"},
		{name: "kName", yaml: topic("kafka.invalid:9092", prefix+"x"), why: "no such host|resolve", do: "correct the host name"},
		{name: "kNotOne", yaml: topic(speaks(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), prefix+"x"), why: ".", do: "port|server|target"},
	}
}

// files are faults of disks and paths.
func files(t *testing.T) []fault {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("plain"), nil, 0o600))
	require.NoError(t, os.WriteFile(in("garbage.jsonl"), []byte("this is no record\n{\"x\":\n"), 0o600))
	full, readOnly := smallDisk(t, "size=4096"), smallDisk(t, "size=65536,ro")
	require.NoError(t, os.WriteFile(filepath.Join(full, "ballast"), make([]byte, 4096), 0o600))
	file := func(path string) string {
		return fmt.Sprintf("{file: {path: %q}, retry: {min_backoff: 50ms, max_backoff: 2s}}", path)
	}
	return []fault{
		{name: "fNoFolder", yaml: file(in("plain/x.jsonl")), why: "not a directory", do: "correct the path|check the path"},
		{name: "fGarbage", yaml: file(in("garbage.jsonl")), why: ".", do: "move the file away|take the line"},
		{name: "fFull", yaml: file(filepath.Join(full, "x.jsonl")), why: "no space left", do: "make room"},
		{name: "fReadOnly", yaml: file(filepath.Join(readOnly, "x.jsonl")), why: "read-only", do: "mount the disk|allowed to write"},
	}
}

// sourceFaults are faults of inputs; their names are those of sources.
func sourceFaults(t *testing.T) []fault {
	brokers, prefix := servers.Kafka(t)
	dir := t.TempDir()
	utf16 := filepath.Join(dir, "utf16.jsonl")
	require.NoError(t, os.WriteFile(utf16, []byte("\xff\xfe{\x00}\x00\n\x00"), 0o600))
	lines := func(name, text string) string {
		path := filepath.Join(dir, name+".jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return fmt.Sprintf("file: {path: %q}, entity: id", path)
	}
	dead := func(name, yaml, why string) fault {
		return fault{name: name, yaml: yaml, what: "dead letters of " + name, why: why, do: "correct the events at their producer.*weir dlq", ends: true}
	}
	return []fault{
		{name: "missing", yaml: fmt.Sprintf("file: {path: %q}, entity: id", dir+"/none.jsonl"), why: "no such file", do: "create the file"},
		{name: "folder", yaml: fmt.Sprintf("file: {path: %q}, entity: id", dir), why: "directory", do: "path"},
		{name: "utf16", yaml: fmt.Sprintf("file: {path: %q}, entity: id", utf16), why: "UTF-16", do: "convert"},
		{name: "notopic", yaml: fmt.Sprintf("kafka: {brokers: [%q], topic: %q}, entity: id", brokers[0], prefix+"none"), why: "UNKNOWN_TOPIC|does not exist", do: "create the topic"},
		{name: "nobroker", yaml: fmt.Sprintf("kafka: {brokers: [%q], topic: t}, entity: id", harness.FreeAddress(t)), why: "refused|broker", do: "start it"},
		{name: "nodb", yaml: fmt.Sprintf("outbox: {url: %q, table: outbox}", "postgres://u@"+harness.FreeAddress(t)+"/x?sslmode=disable"), why: "refused", do: "start it"},
		dead("badjson", lines("badjson", "{\"id\":\n"), "bad_json"),
		dead("noentity", lines("noentity", "{\"x\":1}\n"), "no entity id"),
		dead("longentity", lines("longentity", fmt.Sprintf("{\"id\":%q}\n", strings.Repeat("x", 600))), "limit is 512"),
		dead("nul", lines("nul", "{\"id\":\"a\\u0000\"}\n"), "NUL"),
		dead("listentity", lines("listentity", "{\"id\":[1]}\n"), "bad_entity"),
		dead("list", lines("list", "[1,2]\n"), "."),
		dead("large", lines("large", fmt.Sprintf("{\"id\":\"a\",\"x\":%q}\n", strings.Repeat("x", 2000)))+", max_event: 1KiB", "larger than the limit"),
		dead("badid", lines("badid", fmt.Sprintf("{\"id\":\"a\",\"e\":%q}\n", strings.Repeat("x", 2000)))+", event_id: e", "event id"),
		dead("nopayload", lines("nopayload", "{\"id\":\"a\"}\n")+", payload: body", "payload path body"),
		dead("debezium", lines("debezium", "{\"id\":\"a\"}\n")+", format: debezium", "Debezium"),
		dead("maxwell", lines("maxwell", "{\"id\":\"a\"}\n")+", format: maxwell", "Maxwell"),
		dead("badsequence", lines("badsequence", "{\"id\":\"a\",\"n\":{}}\n")+", sequence: n", "sequence"),
	}
}
