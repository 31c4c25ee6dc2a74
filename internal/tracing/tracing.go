package tracing

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options of a Tracer. All fields are needed unless they say a default.
type Options struct {
	// Exporter sends the spans. Defaults to OTLP over HTTP with protobuf, as the
	// OTEL_EXPORTER_OTLP_… environment variables say.
	Exporter sdktrace.SpanExporter
	// Sample is the share of events without a trace of their own that are
	// traced, 0 to 1.
	Sample float64
	// EntityIDs puts entity ids into spans. They may identify persons. By default spans have
	// hashes of the ids.
	EntityIDs bool
	Logger    *slog.Logger
	Metrics   *Metrics
}

// Tracer makes spans. Its methods may be called from any goroutine.
type Tracer struct {
	opt      Options
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	queue    *queue
}

// New makes a tracer. It does not touch the network. Shutdown must be called
// in the end.
func New(opt Options) (*Tracer, error) {
	if opt.Exporter == nil {
		exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf))
		if err != nil {
			return nil, fmt.Errorf("tracing: %w", err)
		}
		opt.Exporter = exporter
	}
	own, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", "weir"), attribute.String("service.instance.id", uuid.NewString())), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	q := newQueue(opt)
	provider := sdktrace.NewTracerProvider(
		// The code samples before it starts a span.
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(q),
		sdktrace.WithResource(own),
	)
	return &Tracer{opt: opt, provider: provider, tracer: provider.Tracer(scope), queue: q}, nil
}

// scope is the name of the instrumentation in traces.
const scope = "github.com/seed-86dfc502/weir"

// Shutdown sends the spans that ended, until ctx ends. The rest is dropped. It may be called
// twice.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	// Not the provider first: it leaves its processor running if ctx has ended.
	err := t.queue.Shutdown(ctx)
	t.queue.abandon()
	_ = t.provider.Shutdown(context.WithoutCancel(ctx)) // nothing is left for it to wait for
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// Metrics of tracing.
type Metrics struct{ exported, dropped prometheus.Counter }

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_trace_spans_total", Help: "Spans of traced events by outcome: exported, dropped (too many, or the receiver did not take them).",
	}, []string{"outcome"})
	reg.MustRegister(spans)
	return &Metrics{exported: spans.WithLabelValues("exported"), dropped: spans.WithLabelValues("dropped")}
}
