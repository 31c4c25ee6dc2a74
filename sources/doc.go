// Package sources holds the streams of events that are not Kafka topics: files
// of JSON lines and pushed requests. Each is a Watermill subscriber whose
// messages carry a transport.Frame, so that ingest treats them as it treats
// Kafka's. One frame is in work at a time; what piled up meanwhile is the next.
//
// Delivery guarantee of both: at least once, in order. [File] remembers in the
// store how far its frames were acknowledged. [Push] answers a request when its
// events are durable in the inbox; what it did not answer the client sends again.
package sources
