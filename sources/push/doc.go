// Package push is a source of events that requests post. A request is answered
// when its events are durable in the inbox; what was not answered the client
// sends again.
package push
