package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	maxWaiting  = 8192 // spans that ended and are not sent yet
	maxPerBatch = 512
	batchDelay  = 2 * time.Second
)

// queue is the SDK's batch processor with an exact count of the spans that are exported or
// dropped: it admits no more than the processor has room for, so that none is dropped
// there uncounted, and counts the exporter's results for the others.
type queue struct {
	sdktrace.SpanProcessor
	export *exporter
	closed atomic.Bool
}

func newQueue(opt Options) *queue {
	e := &exporter{SpanExporter: opt.Exporter, log: opt.Logger, metrics: opt.Metrics}
	e.limit, e.abandon = context.WithCancel(context.Background())
	return &queue{export: e, SpanProcessor: sdktrace.NewBatchSpanProcessor(e,
		sdktrace.WithMaxQueueSize(maxWaiting), sdktrace.WithMaxExportBatchSize(maxPerBatch),
		sdktrace.WithBatchTimeout(batchDelay))}
}

// OnEnd queues a span or drops it. It never waits.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	switch {
	case q.closed.Load():
		q.export.metrics.dropped.Inc()
	case q.export.waiting.Add(1) > maxWaiting:
		q.export.waiting.Add(-1)
		q.export.metrics.dropped.Inc()
	default:
		q.SpanProcessor.OnEnd(s)
	}
}

// Shutdown implements sdktrace.SpanProcessor.
func (q *queue) Shutdown(ctx context.Context) error {
	q.closed.Store(true)
	return q.SpanProcessor.Shutdown(ctx)
}

// abandon drops unsent spans.
func (q *queue) abandon() { q.export.abandon() }

// exporter counts which of its spans were exported or dropped, and logs when the receiver
// stops taking them and when it takes them again.
type exporter struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	metrics *Metrics
	waiting atomic.Int64
	limit   context.Context // ends with the patience of Shutdown
	abandon context.CancelFunc
	failing bool // owned by the processor's goroutine: the receiver failed at the last batch
}

// ExportSpans sends one batch. It logs a failure itself and returns none:
// the SDK would write it to standard error past the log.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.limit, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	switch {
	case err == nil:
		e.metrics.exported.Add(float64(len(spans)))
		if e.failing {
			e.log.Info("trace receiver is reachable again", "event", "tracing.resumed")
		}
	default:
		e.metrics.dropped.Add(float64(len(spans)))
		if !e.failing {
			e.log.Warn("trace receiver rejects spans or is unreachable; spans are dropped", "event", "tracing.failing", "error", brief(err))
		}
	}
	e.failing = err != nil
	return nil
}

// brief returns the start of an error's text: a receiver's answer is part of it.
func brief(err error) string {
	const most = 300
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
