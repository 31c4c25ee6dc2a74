// Package push is a source of events that requests post. A request is answered when its events
// are durable in the inbox. The client repeats requests without an answer.
package push
