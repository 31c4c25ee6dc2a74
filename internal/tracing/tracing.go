package tracing

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-86dfc502/weir/internal/defaults"
)

// Options of a Tracer. All fields are needed unless they say a default.
type Options struct {
	// Endpoint is the receiver's URL, for OTLP over HTTP with protobuf. Without a
	// path it gets the usual one, /v1/traces.
	Endpoint string
	// Headers are sent with every request. Defaults to none.
	Headers map[string]string
	// Timeout bounds one request to the receiver. Defaults to 10s.
	Timeout time.Duration
	// TLS defaults to the system's authorities.
	TLS *tls.Config
	// Sample is the share of events without a trace of their own that are
	// traced, 0 to 1.
	Sample float64
	// Service is the name of this service in traces.
	Service string
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
	client   *http.Client
}

// New makes a tracer. It does not touch the network. Shutdown must be called
// in the end.
func New(opt Options) (*Tracer, error) {
	opt.Timeout = defaults.Positive(opt.Timeout, 10*time.Second)
	endpoint, err := url.Parse(opt.Endpoint)
	if err != nil || endpoint.Host == "" {
		// The parser's error is left out: it quotes its input.
		return nil, fmt.Errorf("tracing: the endpoint is not a URL")
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = "/v1/traces"
	}
	headers := opt.Headers
	if headers == nil {
		headers = map[string]string{} // else the environment's would be taken
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = opt.TLS
	client := &http.Client{
		Transport: transport, Timeout: opt.Timeout,
		// The headers are for the endpoint alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	exporter, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithHeaders(headers), otlptracehttp.WithHTTPClient(client),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression), otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
		otlptracehttp.WithMaxResponseSize(64<<10),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: opt.Timeout, MaxElapsedTime: 2 * opt.Timeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	q := newQueue(exporter, opt)
	provider := sdktrace.NewTracerProvider(
		// The code samples before it starts a span.
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(q),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", opt.Service), attribute.String("service.instance.id", uuid.NewString()))),
	)
	return &Tracer{opt: opt, provider: provider, tracer: provider.Tracer(scope), queue: q, client: client}, nil
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
	t.client.CloseIdleConnections()
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
