// Package demo writes a stream of realistic events and its configuration: three sources, and
// any number of entities, events and customers. The same seed makes the same bytes.
//
// The stream has the properties of real ones: fields that change with every event and that no
// projection reads, members in changing order, redelivered events, late events of a producer,
// deletions, and entities that are created again.
package demo
