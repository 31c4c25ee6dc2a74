// Package sources defines a source. Each kind is a Watermill subscriber
// whose messages carry a transport.Frame, so that ingest treats them all as it
// treats Kafka's. One frame is in work at a time; what piled up meanwhile is the
// next. A kind keeps all that there is to it in its own package, and has one line
// in package registry.
//
// Delivery guarantee of all kinds: at least once, in order.
package sources
