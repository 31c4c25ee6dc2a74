package pipeline

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// Traces leave the machine encrypted, unless the environment says otherwise.
func TestReceiverOfTraces(t *testing.T) {
	for _, c := range []struct{ endpoint, insecure, err string }{
		{"", "", "must be"}, {"otel", "", "must be"}, {"http://user:hunter2@[", "", "must be"},
		{"http://127.0.0.1:4318", "", ""}, {"https://otel.example:4318", "", ""},
		{"http://otel.example:4318", "", "without TLS"}, {"http://otel.example:4318", "true", ""},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.endpoint)
		t.Setenv("OTEL_EXPORTER_OTLP_INSECURE", c.insecure)
		tracer, err := openTracing(&config.Tracing{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.endpoint)
			require.NotContains(t, err.Error(), "hunter2")
			continue
		}
		require.NoError(t, err, c.endpoint)
		require.NoError(t, tracer.Shutdown(t.Context()))
	}
}
