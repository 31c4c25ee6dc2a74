package pipeline

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A stage that stopped, or did not start, has closed its sources: no caller may use them,
// or conclude that all of them are read.
func TestSourcesThatAreClosedAreNotAsked(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := openEmbedded(t, Roles{Ingest: true}, fmt.Sprintf("api: {listen: %q}\nsources: {in: {http: {token: 0123456789abcdef}, entity: id}}", taken.Addr()))

	_, err = p.ingest.start(t.Context(), startOptions{})
	require.Error(t, err, "somebody else has the address")
	require.Empty(t, p.ingest.sources())

	require.NoError(t, taken.Close())
	started, err := p.ingest.start(t.Context(), startOptions{})
	require.NoError(t, err)
	require.Len(t, p.ingest.sources(), 1)
	require.Empty(t, p.idle.waits(t.Context()))
	require.NoError(t, started.stop())
	require.Empty(t, p.ingest.sources())
	require.Len(t, p.idle.waits(t.Context()), 1)
}

// The API knows which sources take patches, which it refuses where nothing shows that
// they come again.
func TestPostedPatchesNeedAnId(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := openEmbedded(t, Roles{Ingest: true}, fmt.Sprintf("api: {listen: %q}\nsources:\n  lab: {http: {}, entity: id, event_id: event, mode: patch, mount: lab}\n  desk: {http: {}, entity: id, event_id: event}", free.Addr()))
	require.NoError(t, free.Close())
	p.monitor.started.Store(true)
	started, err := p.ingest.start(t.Context(), startOptions{})
	require.NoError(t, err)
	for source, want := range map[string]string{"lab": "422 no_event_id", "desk": "202 "} {
		answer, err := http.Post("http://"+free.Addr().String()+"/v1/sources/"+source+"/events", "application/json", strings.NewReader(`{"id":"B","a":1}`))
		require.NoError(t, err)
		var got struct{ Code string }
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&got))
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, fmt.Sprint(answer.StatusCode, " ", got.Code), source)
	}
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, started.stop())
}

// I13: a source that cannot be opened is named with its reason while the others are read, and
// the process is ready. It is read as soon as it can be opened.
func TestASourceThatCannotBeOpenedIsNamed(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	topic := prefix + "missing"
	p := openEmbedded(t, Roles{Ingest: true}, fmt.Sprintf(`kafka: {prefix: %s}
sources:
  present: {file: {path: in.jsonl}, entity: id}
  missing: {kafka: {brokers: [%q], topic: %s}, entity: id}
  single: {kafka: {brokers: [%q], topic: %s, frame_records: 1}, entity: id}`, strings.TrimRight(prefix, ".-_"), brokers[0], topic, brokers[0], topic))
	started, err := p.ingest.start(t.Context(), startOptions{})
	require.NoError(t, err)
	state := func(name string) *source {
		all := p.ingest.sources()
		return all[slices.IndexFunc(all, func(s *source) bool { return s.name == name })]
	}
	failing := func(name string) error { _, err := state(name).failing(); return err }
	require.ErrorIs(t, failing("missing"), kerr.UnknownTopicOrPartition)
	require.ErrorIs(t, failing("single"), kerr.UnknownTopicOrPartition)
	p.monitor.started.Store(true)
	p.monitor.checked.Store(true)
	p.monitor.noteSources(time.Now())
	health := p.Health()
	require.Equal(t, operate.LevelDegraded, health.Level)
	require.Equal(t, []string{"source missing", "source single"}, []string{health.Problems[0].What, health.Problems[1].What})
	require.Contains(t, health.Problems[0].Why, "UNKNOWN_TOPIC")
	require.Equal(t, map[string]float64{"present": 0, "missing": 1, "single": 1}, gaugeValues(t, p.opt.Registry, "weir_source_failing"))
	present := state("present")

	admin, err := transport.NewAdmin(transport.Config{Brokers: brokers})
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.EnsureTopics(t.Context(), []transport.TopicSpec{{Name: topic, Partitions: 1}}))
	require.Eventually(t, func() bool { return failing("missing") == nil && failing("single") == nil }, time.Minute, 10*time.Millisecond)
	require.Same(t, present, state("present"), "it was read all the time")
	require.NoError(t, started.stop())
}

// openEmbedded opens a pipeline without servers: a main file beside its customers, of
// which there is one with one service.
func openEmbedded(t *testing.T, roles Roles, main string) *Pipeline {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"weir.yaml": main + "\ncustomers: [acme.yaml]\n",
		"in.jsonl":  "",
		"acme.yaml": "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {f: {file: {path: out.jsonl}}}}}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	p, err := Open(t.Context(), Options{Config: c, Roles: roles, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}
