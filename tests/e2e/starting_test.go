package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// A process that is told to stop while it still waits for a server that does
// not answer ends in order, as a deployment that is taken back expects.
func TestTerminateWhileStarting(t *testing.T) {
	for _, more := range []string{
		"store: {postgres: {url: \"postgres://weir@%s/weir?sslmode=disable\"}}\nkafka: {brokers: [\"127.0.0.1:9\"]}\n",
		"kafka: {brokers: [%q]}\n",
	} {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		p := harness.Simple(t, fmt.Sprintf(more, silent.Addr()), map[string]string{"acme": harness.FileSink("acme")})
		run := p.Start("run")
		c, err := silent.Accept() // and no answer
		require.NoError(t, err)
		run.Terminate()
		run.Ok()
		require.NoError(t, c.Close())
		require.NoError(t, silent.Close())
	}
}

// A process whose store or brokers do not answer at its start waits for them, alive and not
// ready, with the line of an outage, and runs when they answer.
func TestStartWaitsForServers(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	store := servers.Postgres(t)
	address, err := url.Parse(store)
	require.NoError(t, err)
	for what, behind := range map[string]string{"store": address.Host, "kafka": brokers[0]} {
		t.Run(what, func(t *testing.T) {
			door, admin := harness.FreeAddress(t), harness.FreeAddress(t)
			at := map[string]string{"store": address.Host, "kafka": brokers[0]}
			at[what] = door
			own := *address
			own.Host = at["store"]
			p := harness.Simple(t, fmt.Sprintf("store: {postgres: {url: %q}}\nkafka: {brokers: [%q], prefix: %q}\n", own.String(), at["kafka"], prefix+what),
				map[string]string{"acme": harness.FileSink("acme")})
			p.Write("weir.yaml", strings.Replace(p.Read("weir.yaml"), "127.0.0.1:0", admin, 1))
			run := p.Start("run")
			harness.Eventually(t, "it says that it is not ready", func() error {
				status, body, err := get("http://" + admin + "/readyz")
				if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(body, "connection refused") && !strings.Contains(body, "unable to dial")) {
					err = fmt.Errorf("%d %s", status, body)
				}
				return err
			})
			status, _, err := get("http://" + admin + "/healthz")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			run.Says("event=dependency.unreachable dependency=" + what)
			harness.NewProxy(t, door, behind)
			run.Says("event=dependency.reachable dependency=" + what)
			run.Ready(http.StatusOK)
			run.Terminate()
			run.Ok()
		})
	}
}

// A start that no waiting mends ends at once.
func TestStartEndsForAWrongConfiguration(t *testing.T) {
	address, err := url.Parse(servers.Postgres(t))
	require.NoError(t, err)
	address.Path = "/nodatabase"
	p := harness.Simple(t, fmt.Sprintf("store: {postgres: {url: %q}}\nkafka: {brokers: [\"127.0.0.1:9\"]}\n", address), map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	require.Equal(t, 1, run.Wait())
	require.Contains(t, run.Log.String(), "does not exist")
}

// get returns the answer of an address.
func get(url string) (status int, body string, err error) {
	r, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// Of two processes one delivers while a service writes a file. The other takes over when it dies.
func TestOneProcessWritesTheFile(t *testing.T) {
	p := harness.SimpleOnBrokers(t, "inbox: {partitions: 4}", fmt.Sprintf("store: {postgres: {url: %q}}\n", servers.Postgres(t)), map[string]string{"acme": harness.FileSink("acme")})
	written := func(n int) {
		harness.Eventually(t, "the file has all changes", func() error {
			if got := len(p.Records("out/acme.jsonl")); got != n {
				return fmt.Errorf("%d of %d", got, n)
			}
			return nil
		})
	}
	first := p.Start("run")
	first.Ready(http.StatusOK)
	p.Append("events.jsonl", harness.Many(40, 0, 1))
	written(40)
	second := p.Start("run")
	second.Ready(http.StatusOK)
	p.Append("events.jsonl", harness.Many(40, 1, 2))
	written(80)
	first.Kill()
	p.Append("events.jsonl", harness.Many(40, 2, 3))
	written(120)
	second.Terminate()
	second.Ok()
}
