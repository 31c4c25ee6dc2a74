package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/tracing"
)

// openTracing makes the tracer of a configuration. The receiver is in the environment.
func openTracing(c *config.Tracing, reg prometheus.Registerer, log *slog.Logger) (*tracing.Tracer, error) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	u, err := url.Parse(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv(endpoint)))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("tracing: " + endpoint + " must be the http or https URL of a receiver")
	case u.Scheme == "http" && config.Beyond(u.Hostname()) && os.Getenv("OTEL_EXPORTER_OTLP_INSECURE") != "true":
		return nil, errors.New("tracing: " + endpoint + " is reached without TLS beyond this machine: use https, or set OTEL_EXPORTER_OTLP_INSECURE=true")
	}
	return tracing.New(tracing.Options{
		Sample: float64(c.Sample), EntityIDs: c.EntityIDs, Logger: log, Metrics: tracing.NewMetrics(reg),
	})
}

// flushTimeout is how long the last spans may take at a stop.
const flushTimeout = 2 * time.Second

// flushTraces sends the last spans.
func (c *connections) flushTraces() error {
	ctx, cancel := context.WithTimeout(c.end.closing(), flushTimeout)
	defer cancel()
	if err := c.tracer.Shutdown(ctx); err != nil {
		c.log.Warn("the last spans were not sent", "event", "traces.lost", "error", err)
	}
	return nil
}
