package kafka

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// While a cluster is down one of its services finds out when it is back. The others
// try neither to take over nor to write.
func TestOneServiceProbesAClusterThatIsDown(t *testing.T) {
	var targets sinks.Targets
	var services [2]sinks.Recoverer
	for i, name := range []string{"a/p@k", "b/p@k"} {
		c := Config{Topic: "t"}
		sink, err := c.Make(kind.Env{Service: name, Logger: slog.New(slog.DiscardHandler), Targets: &targets,
			Cluster: func(config.Cluster) (transport.Config, string, error) {
				return transport.Config{Brokers: []string{"127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler)}, "", nil
			}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sink.Close()) })
		sink.(*Sink).opts.stallTimeout = 50 * time.Millisecond
		services[i] = sink.(sinks.Recoverer)
	}
	attempts := map[string]func(s sinks.Recoverer) error{
		"resume": func(s sinks.Recoverer) error { return s.Resume(t.Context(), []sinks.Takeover{{}}) },
		"write":  func(s sinks.Recoverer) error { return s.Write(t.Context(), []change.Change{upsert("a", 1)}) },
	}
	for name, attempt := range attempts {
		// The waits between probes grow, so in the end one comes before the next is due.
		for tries := 0; ; tries++ {
			require.Less(t, tries, 100, name)
			err := attempt(services[tries%2])
			require.Error(t, err)
			if errors.Is(err, sinks.ErrDown) {
				break
			}
		}
	}
}
