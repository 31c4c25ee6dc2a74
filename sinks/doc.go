// Package sinks defines a sink: the last stage of deliver, which makes
// changes durable at a customer's target.
//
// One sink serves one service. It gets batches of changes and knows nothing
// about projections, dams or topics. Every sink makes a repeated attempt a
// no-op, by idempotency key or by version, or says in its own documentation
// its limits (invariant I2), and never lets an older version overwrite
// a newer one (I5).
//
// Services of one target share its client, a bound on its connections and the time of
// the next attempt while it is down ([Targets], [Lease]): the service that comes first makes it, and
// the errors of the others wait for that ([Error.Await]).
//
// The implementations live in packages of their own below this one; package
// sinktest holds the conformance suite that all of them pass.
package sinks
