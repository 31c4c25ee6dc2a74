// Package tracing makes OpenTelemetry traces of the flow, one trace for what
// one event caused: ingest, decide, and a delivery per change.
//
// Stages are far apart in time and mostly in different processes, so the
// context of a trace travels with the data, as W3C trace context: headers of a
// source's record or request, of the inbox record, a field of the change, and
// again headers where a sink can have some. The field keeps it in the changes
// log: a change that the next owner delivers belongs to its trace still.
//
// Whether an event is traced is decided once, where it comes in: as its
// producer decided, or by chance. Only the contexts of traced events travel, so
// that every other event costs nothing further on.
//
// A batch works for many events. It has a trace of its own, linked with those of
// its events.
//
// Tracing never holds up the flow. Spans wait in a bounded queue; what finds it
// full, or an unreachable receiver, is dropped and counted.
//
// A nil *Tracer is the tracer of a process without tracing, a nil *Span the span of an
// event that is not traced: every method of them does nothing.
package tracing
