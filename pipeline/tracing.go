package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/tracing"
)

// openTracing makes the tracer of a configuration.
func openTracing(c *config.Tracing, reg prometheus.Registerer, log *slog.Logger) (*tracing.Tracer, error) {
	t, _, err := c.OTLP.TLS.Client()
	if err != nil {
		return nil, err
	}
	headers := make(map[string]string, len(c.OTLP.Headers))
	for name, value := range c.OTLP.Headers {
		headers[name] = value.Reveal()
	}
	return tracing.New(tracing.Options{
		Endpoint: c.OTLP.Endpoint.Reveal(), Headers: headers, Timeout: c.OTLP.Timeout.D(), TLS: t,
		Sample: float64(c.Sample), Service: c.ServiceName, EntityIDs: c.EntityIDs,
		Logger: log, Metrics: tracing.NewMetrics(reg),
	})
}

// flushTimeout is how long the last spans may take at a stop.
const flushTimeout = 2 * time.Second

// flushTraces sends the last spans.
func (p *Pipeline) flushTraces() error {
	ctx, cancel := context.WithTimeout(p.end.closing(), flushTimeout)
	defer cancel()
	if err := p.tracer.Shutdown(ctx); err != nil {
		p.log.Warn("the last spans were not sent", "event", "traces.lost", "error", err)
	}
	return nil
}
