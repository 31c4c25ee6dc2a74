package pipeline

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/internal/tracing"
)

// flushTimeout is how long the last spans may take at a stop.
const flushTimeout = 2 * time.Second

// openTracing makes the tracer, if the configuration wants one.
func (p *process) openTracing() error {
	c := p.cfg.Tracing
	if c == nil {
		return nil
	}
	t, _, err := c.OTLP.TLS.Client()
	if err != nil {
		return err
	}
	headers := make(map[string]string, len(c.OTLP.Headers))
	for name, value := range c.OTLP.Headers {
		headers[name] = value.Reveal()
	}
	p.tracer, err = tracing.New(tracing.Options{
		Endpoint: c.OTLP.Endpoint.Reveal(), Headers: headers, Timeout: c.OTLP.Timeout.D(), TLS: t,
		Sample: float64(c.Sample), Service: c.ServiceName, EntityIDs: c.EntityIDs,
		Logger: p.log, Metrics: tracing.NewMetrics(p.reg),
	})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, func() error {
		ctx, cancel := context.WithTimeout(p.end.closing(), flushTimeout)
		defer cancel()
		if err := p.tracer.Shutdown(ctx); err != nil {
			p.log.Warn("the last spans were not sent", "error", err)
		}
		return nil
	})
	return nil
}
