package assemble

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Two customers have topics on the same brokers, and certificates of their own. No
// record of one may go out under the certificate of the other.
func TestKafkaSinksKeepTheirCertificates(t *testing.T) {
	server := certificate(t)
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	require.NoError(t, err)
	var mu sync.Mutex
	seen := map[string]int{} // connections by the client's certificate
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "one", "other"), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			mu.Lock()
			defer mu.Unlock()
			seen[string(s.PeerCertificates[0].Raw)]++
			return nil
		},
	}))
	require.NoError(t, err)
	defer brokers.Close()
	connections := func(c *config.ServerTLS) int {
		own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		return seen[string(own.Certificate[0])]
	}

	p := &Sinks{Config: loadExample(t, "banana"), Logger: slog.New(slog.DiscardHandler), Targets: &sinks.Targets{}}
	cluster := func(c *config.ServerTLS) config.Cluster {
		return config.Cluster{Brokers: brokers.ListenAddrs(), TLS: &config.TLS{CA: server.Cert, Cert: c.Cert, Key: c.Key}}
	}
	write := func(topic string, c *config.ServerTLS) sinks.Sink {
		s, err := p.New(config.Service{Name: "acme/a@" + topic, Delivery: &config.Delivery{Sink: &kafka.Config{Cluster: cluster(c), Topic: topic}}})
		require.NoError(t, err)
		require.NoError(t, s.Open(t.Context()))
		require.NoError(t, s.Write(t.Context(), []change.Change{sinktest.Change("acme/a@"+topic, "e", change.NewVersion(1, 1), []byte(`{}`))}))
		return s
	}
	one, other := certificate(t), certificate(t)
	first := write("one", one)
	require.Positive(t, connections(one))
	require.Zero(t, connections(other))
	before := connections(one)
	second := write("other", other)
	require.Positive(t, connections(other), "written under another's certificate")
	require.Equal(t, before, connections(one))

	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	sharedByCertificate(t, p, cluster, one, other)
}

// sharedByCertificate checks which connections share a client: those of one certificate and user.
func sharedByCertificate(t *testing.T, p *Sinks, cluster func(*config.ServerTLS) config.Cluster, one, other *config.ServerTLS) {
	t.Helper()
	client := func(c config.Cluster) *fenced.Client {
		lease, err := (&kafka.Config{Cluster: c}).Client(p.env("acme/a@one"))
		require.NoError(t, err)
		client, err := lease.Client()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lease.Close()) })
		return client
	}
	shared := client(cluster(one))
	copied := filepath.Join(t.TempDir(), "copy.pem")
	text, err := os.ReadFile(one.Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, text, 0o600))
	again := client(cluster(&config.ServerTLS{Cert: copied, Key: one.Key}))
	require.Same(t, shared, again, "the same certificate in another file")
	authenticated := cluster(one)
	authenticated.SASL = &config.SASL{Mechanism: "plain", Username: "u", Password: config.NewSecret("p")}
	user := client(authenticated)
	require.NotSame(t, shared, user)
	authenticated.SASL = &config.SASL{Mechanism: "plain", Username: "u", Password: config.NewSecret("q")}
	rotated := client(authenticated)
	require.NotSame(t, user, rotated)

	// The file has another content after a rotation: a reload must not go on with the old one.
	text, err = os.ReadFile(other.Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(one.Cert, text, 0o600))
	text, err = os.ReadFile(other.Key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(one.Key, text, 0o600))
	renewed := client(cluster(one))
	require.NotSame(t, shared, renewed)
	expected := client(cluster(other))
	require.Same(t, expected, renewed)
}

// certificate is one of its own.
func certificate(t *testing.T) *config.ServerTLS {
	t.Helper()
	cert, key := harness.Certificate(t)
	return &config.ServerTLS{Cert: cert, Key: key}
}
