package doctor

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// configured loads a configuration with one source, one customer and what main adds.
func configured(t *testing.T, main string) *config.Config {
	t.Helper()
	return configuredSources(t, "", main)
}

// configuredSources is configured with more sources, each a line of YAML.
func configuredSources(t *testing.T, sources, main string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("in.jsonl", "")
	write("weir.yaml", "sources:\n  in: {file: {path: in.jsonl}, entity: id}\n"+sources+"customers: [acme.yaml]\n"+main)
	write("acme.yaml", "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: out/a.jsonl}}}}}\n")
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	return c
}

// said returns the findings about one thing, and that each which is not fine has a remedy.
func said(t *testing.T, findings []operate.Item, what string) (level operate.Level, text string) {
	t.Helper()
	var lines []string
	level = operate.LevelOK
	for _, f := range findings {
		require.Equal(t, f.Level != operate.LevelOK, f.Do != "", "%+v", f)
		if f.What == what {
			lines = append(lines, f.Why+" | "+f.Do)
			if f.Level.Rank() > level.Rank() {
				level = f.Level
			}
		}
	}
	require.NotEmpty(t, lines, "nothing about %s in %+v", what, findings)
	return level, strings.Join(lines, "\n")
}

func short(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
}

func TestPostgres(t *testing.T) {
	short(t)
	address := servers.Postgres(t)
	brokers, prefix := servers.Kafka(t)
	of := func(url string) *config.Config {
		return configured(t, "store: {postgres: {url: \""+url+"\"}}\nkafka: {brokers: [\""+strings.Join(brokers, `", "`)+"\"], inbox: {topic: "+prefix+"in}}\n")
	}
	level, text := said(t, Examine(t.Context(), of(address), Options{}), "store")
	require.Equal(t, operate.LevelDown, level)
	require.Contains(t, text, "| weir migrate -c ", "its tables are missing")

	s, err := postgres.Open(t.Context(), postgres.Options{URL: address})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	level, text = said(t, Examine(t.Context(), of(address), Options{}), "store")
	require.NotEqual(t, operate.LevelDown, level, text)

	level, text = said(t, Examine(t.Context(), of(address), Options{Now: func() time.Time { return time.Now().Add(time.Hour) }}), "store")
	require.Equal(t, operate.LevelDown, level)
	require.Regexp(t, `its clock and this machine's are (59m|1h).* apart \| let both follow NTP`, text)

	with := func(name, value string) string {
		u, err := url.Parse(address)
		require.NoError(t, err)
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	level, text = said(t, Examine(t.Context(), of(with("pool_max_conns", "7")), Options{}), "store")
	require.NotEqual(t, operate.LevelDown, level, text)
	level, text = said(t, Examine(t.Context(), of(with("default_transaction_read_only", "on")), Options{}), "store")
	require.Equal(t, operate.LevelDown, level)
	require.Contains(t, text, "it takes no writes")
	_, text = said(t, Examine(t.Context(), of(with("synchronous_commit", "off")), Options{}), "store")
	require.Contains(t, text, "SET synchronous_commit = on")
}

func TestValkey(t *testing.T) {
	short(t)
	server := servers.StartOwn(t, "valkey")
	address := server.Address
	cfg := configured(t, "gate: {valkey: {address: \""+address+"\"}}\n")
	level, text := said(t, Examine(t.Context(), cfg, Options{}), "gate")
	require.Equal(t, operate.LevelOK, level, text)
	require.Regexp(t, `(Valkey|Redis) \d+\..*memory without a limit`, text)

	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, DisableCache: true, ForceSingleClient: true})
	require.NoError(t, err)
	defer client.Close()
	for name, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "noeviction"} {
		require.NoError(t, client.Do(t.Context(), client.B().ConfigSet().ParameterValue().ParameterValue(name, value).Build()).Error())
	}
	level, text = said(t, Examine(t.Context(), cfg, Options{}), "gate")
	require.Equal(t, operate.LevelDegraded, level)
	require.Contains(t, text, "CONFIG SET maxmemory-policy volatile-ttl")
	_, text = said(t, Examine(t.Context(), cfg, Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }}), "gate")
	require.Contains(t, text, "let both follow NTP")
}

func TestKafka(t *testing.T) {
	short(t)
	brokers, prefix := servers.Kafka(t)
	cfg := configured(t, "store: {postgres: {url: \""+servers.Postgres(t)+"\"}}\nkafka: {brokers: [\""+strings.Join(brokers, `", "`)+"\"], inbox: {topic: "+prefix+"in, partitions: 3}}\n")
	level, text := said(t, Examine(t.Context(), cfg, Options{}), "kafka")
	require.Equal(t, operate.LevelOK, level, text)
	require.Contains(t, text, "topic "+prefix+"in is made at the start")

	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	compacted, unclean := "compact", "true"
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, map[string]*string{"cleanup.policy": &compacted, "unclean.leader.election.enable": &unclean}, prefix+"in")
	require.NoError(t, err)
	var findings []operate.Item
	require.Eventually(t, func() bool { // until the broker knows the topic
		findings = Examine(t.Context(), cfg, Options{})
		for _, f := range findings {
			if f.What == "topic "+prefix+"in" {
				return true
			}
		}
		return false
	}, time.Minute, 50*time.Millisecond)
	level, text = said(t, findings, "topic "+prefix+"in")
	require.Equal(t, operate.LevelDown, level)
	require.Contains(t, text, "it has 2 partitions, and the configuration says 3 | set kafka.inbox.partitions to 2")
	require.Contains(t, text, "cleanup.policy is compact, and the configuration says delete | the next start alters it")
	require.Contains(t, text, "--add-config unclean.leader.election.enable=false")
}

// What does not answer is a fault with a remedy, and the rest is examined all the same.
func TestWhatDoesNotAnswer(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := closed.Addr().String()
	require.NoError(t, closed.Close())
	findings := Examine(t.Context(), configured(t, "gate: {valkey: {address: \""+nobody+"\"}}\n"), Options{})
	level, text := said(t, findings, "gate")
	require.Equal(t, operate.LevelDown, level)
	require.Contains(t, text, "refused | start it, or correct its host and port")
	level, _ = said(t, findings, "source in")
	require.Equal(t, operate.LevelOK, level)
	_, text = said(t, findings, "this machine")
	require.Contains(t, text, "open files")
	require.Equal(t, 1, Faults(findings))
}

func TestRoomOnADisk(t *testing.T) {
	for _, c := range []struct {
		free, whole uint64
		want        operate.Level
	}{{100 << 20, 100 << 30, operate.LevelDown}, {1 << 29, 2 << 30, operate.LevelDegraded}, {4 << 30, 100 << 30, operate.LevelDegraded}, {50 << 30, 100 << 30, operate.LevelOK}} {
		e := &examination{}
		e.room("/data", c.free, c.whole)
		e.sound("disk /data", 0)
		level, text := said(t, e.findings, "disk /data")
		require.Equal(t, c.want, level, text)
	}
}

// Others must not read the state.
func TestAFolderForAll(t *testing.T) {
	cfg := configured(t, "")
	dir := filepath.Dir(cfg.Store.File)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	level, text := said(t, Examine(context.Background(), cfg, Options{}), "disk "+dir)
	require.Equal(t, operate.LevelDegraded, level)
	require.Contains(t, text, "chmod 700 "+dir)
}

func TestFewEntitiesInMemory(t *testing.T) {
	cfg := configured(t, "")
	s, err := assemble.OpenStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(t.Context()))
	now := time.Now()
	for name, p := range map[string]operate.Process{"busy": {Cached: 79, Loaded: 21}, "well": {Cached: 80, Loaded: 20}, "idle": {Loaded: 99}, "gone": {Loaded: 500, Stopped: true}} {
		p.Name, p.Seen = name, now
		body, err := json.Marshal(p)
		require.NoError(t, err)
		require.NoError(t, s.UpdateReport(t.Context(), operate.ProcessKind, name, func([]byte) ([]byte, error) { return body, nil }))
	}
	findings := Examine(t.Context(), cfg, Options{})
	level, text := said(t, findings, "process busy")
	require.Equal(t, operate.LevelDegraded, level)
	require.Equal(t, "of 100 entities per second, 79 % were in memory: each of the others is read from the store | raise limits.memory if that is so after the first load, too", text)
	for _, f := range findings {
		require.NotContains(t, []string{"process well", "process idle", "process gone"}, f.What)
	}
}
