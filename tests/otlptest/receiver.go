// Package otlptest is a receiver of OpenTelemetry traces for tests: OTLP over
// HTTP, protobuf, as a collector takes it.
package otlptest

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was received.
type Span struct {
	Name    string
	Service string // the resource's service.name
	Trace   string // 32 hex digits
	ID      string // 16 hex digits
	Parent  string // of the span above, empty without one
	State   string // tracestate
	// Attributes have numbers and truth values as text.
	Attributes map[string]string
	Links      []string // ids of spans
	Failure    string   // why, when it has an error status
	Failed     bool
}

// Receiver takes spans from the time that it is made until the test ends.
type Receiver struct {
	t      testing.TB
	server *httptest.Server

	mu     sync.Mutex
	spans  []Span
	answer func() int
}

// New makes a receiver.
func New(t testing.TB) *Receiver {
	r := &Receiver{t: t}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

// patience is the timeout of one request. A span that is sent twice, or dropped, is another one to
// the tests.
const patience = time.Minute

// Env are the variables of a process that sends its traces to the receiver.
func (r *Receiver) Env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.server.URL, fmt.Sprint("OTEL_EXPORTER_OTLP_TIMEOUT=", patience.Milliseconds())}
}

// Exporter sends spans to the receiver.
func (r *Receiver) Exporter() sdktrace.SpanExporter {
	e, err := otlptracehttp.New(r.t.Context(), otlptracehttp.WithEndpointURL(r.server.URL+"/v1/traces"), otlptracehttp.WithTimeout(patience))
	require.NoError(r.t, err)
	return e
}

// Answers sets what returns the status of the next answers. It may block; nil
// takes everything.
func (r *Receiver) Answers(f func() int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// ServeHTTP takes one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		if status := answer(); status/100 != 2 {
			w.WriteHeader(status)
			return
		}
	}
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender is gone
	}
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(bytes.NewReader(text))
		if !assert.NoError(r.t, err) {
			return
		}
		if text, err = io.ReadAll(unzipped); !assert.NoError(r.t, err) {
			return
		}
	}
	var batch collector.ExportTraceServiceRequest
	if !assert.Equal(r.t, "application/x-protobuf", req.Header.Get("Content-Type")) || !assert.NoError(r.t, proto.Unmarshal(text, &batch)) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range batch.ResourceSpans {
		service := textsOf(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, spanOf(s, service))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func spanOf(s *v1.Span, service string) Span {
	out := Span{
		Name: s.Name, Service: service, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
		Parent: hex.EncodeToString(s.ParentSpanId), State: s.TraceState, Attributes: textsOf(s.Attributes),
		Failed: s.GetStatus().GetCode() == v1.Status_STATUS_CODE_ERROR, Failure: s.GetStatus().GetMessage(),
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.SpanId))
	}
	return out
}

func textsOf(attributes []*common.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			texts[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			texts[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			texts[a.Key] = fmt.Sprint(v.BoolValue)
		default:
			texts[a.Key] = fmt.Sprintf("%T", v)
		}
	}
	return texts
}

// Spans are the spans that came, in order.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Below returns the spans with a name below the span id, when there are so many,
// and waits for them.
func (r *Receiver) Below(id, name string, many int) []Span {
	r.t.Helper()
	return r.Await(func(s Span) bool { return s.Parent == id && s.Name == name }, many)
}

// Await waits for so many spans that are wanted.
func (r *Receiver) Await(wanted func(Span) bool, many int) (found []Span) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		found = nil
		for _, s := range r.Spans() {
			if wanted(s) {
				found = append(found, s)
			}
		}
		return len(found) >= many
	}, 3*time.Minute, 20*time.Millisecond)
	return found
}
