// Package noise tells which fields cause suppressed events, and which strip
// rules would stop them at the door.
//
// # Model
//
// Deciding processes keep a sketch of what suppressed events changed (package
// sketch). Here it is held against the configuration. A rule is offered for a
// path only if no projection can read anything there, in a field or in a filter,
// at the place where the source is mounted: stripping it can then change nothing
// that any customer gets. Whether a projection happened to show the change, as
// when its filter let nothing through, plays no part in that. Nor does it matter
// which source wins at the path.
//
// A rule takes effect for documents that come after it. As a change of the
// configuration it makes each entity be evaluated once more, at its next event
// or by a backfill, which sends nothing by itself.
package noise
