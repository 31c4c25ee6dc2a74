// Package sinktest is the conformance suite for sinks: what deliver relies on,
// as tests that every sink runs against its real target.
//
// # Model
//
// A [Target] is one real target (a database table, a topic, a file, an
// endpoint) together with the ways to look into it from outside. [Run] opens
// sinks on it, writes changes through them as deliver would (ascending versions
// per entity, redeliveries from an earlier point, crashes between the effect
// and the confirm) and compares the target with a small model in
// memory.
//
// The model of a state sink is: each entity has the document of the highest
// version ever written, or is retracted. The model of a log sink is: each
// entity has its changes in the order of their first arrival, each key once.
//
// A target is used by all subtests of a Run, one after the other; the suite
// takes new entity names for each, so the target need not be emptied.
//
// # Not tested
//
// Killing a process in the middle of a Write: from outside that looks like a
// batch of which any part took effect, which the redelivery tests cover; a sink
// with files of its own must test torn writes itself. Performance.
package sinktest
