// Package sources holds the streams of events that are not Kafka topics: files
// of JSON lines and pushed requests. Each is a Watermill subscriber whose
// messages carry a transport.Position, so that ingest treats them as it treats
// Kafka's.
//
// Delivery guarantee of both: at least once, in order. [File] remembers how
// far it got in the store, contiguous over acknowledged lines. [Push] answers
// a request when its events are durable in the inbox; what it did not answer
// the client sends again.
package sources
