// Package reconcile compares what the dam says that a customer has with what
// the customer's target really holds.
//
// # Model
//
// Dam rows of a service and rows of its target come in the same order, by the
// bytes of the entity, and are merged page by page, in bounded memory. Both may
// change meanwhile. How far the service's deliveries are is read first, then a page
// of the dam, then the same range of the target. A position passes what took
// effect, and what a newer decision replaced; the newest change of a row was not
// replaced: so a target that holds less than a dam row below the position has lost
// something. What the target holds beyond the dam row is judged only after the row
// was read once more. Hence what is merely under way is not
// taken for drift, as long as tombstones are kept for longer than a page takes
// (retention.tombstones). There is one exception: a change that was refused under
// a newer configuration than its own, and so is to be decided again, looks lost
// until that is decided. To send it again does no harm.
//
//	missing  delivered, and the target holds nothing
//	stale    the target holds an older version than was delivered
//	differs  the delivered version, with another document or another state
//	extra    the target shows an entity that it should not: it was retracted, or the dam does not know it
//	ahead    the target holds a newer version than was ever decided
//	pending  decided, or written, and not passed by the position yet: no drift
//	unknown  the dam does not know what the target has, after a reset: no drift
//	refused  the target refused the newest change, which is held back: no drift
//
// Documents are compared by their structural hash where the target keeps them
// whole; typed columns are not compared.
//
// # Repair
//
// Nothing here writes to a target. Missing, stale, different and retracted
// entities are named to the caller, who asks for their decision once more, by
// force: what is sent is what the entity is now, under a new version (I10). What
// the dam does not know, and what is ahead of it, only a person can remove.
package reconcile
