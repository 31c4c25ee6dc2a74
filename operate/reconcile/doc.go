// Package reconcile compares dam rows with the rows of the customers' targets.
//
// # Model
//
// Dam rows of a service and rows of its target come in the same order, by the bytes of the
// entity, and are merged page by page, in bounded memory. Both may change meanwhile. The
// service's position is read first, then a page of the dam, then the same range of the target.
//
// A position passes a change that took effect, or that a newer decision replaced. The newest
// change of a row was not replaced. So a target below a dam row that is below the position has
// lost something. A target above the dam row is judged after a second read of the row. Changes
// under way are no drift, as long as tombstones are kept for longer than a page takes
// (retention.tombstones). One exception: a change that a newer configuration refused and that
// is to be decided again looks lost until then. Sending it again does no harm.
//
//	missing  delivered, and the target holds nothing
//	stale    the target holds an older version than was delivered, with another document or state
//	differs  the delivered version, with another document or another state
//	extra    the target shows an entity that was retracted, or has no dam row
//	ahead    the target holds a newer version than was ever decided
//	queued   decided, or written, and not passed by the position yet, or retried: no drift
//	unknown  the dam state is unknown, after a reset: no drift
//	refused  the target refused the newest change, which is held back: no drift
//
// Documents are compared by their structural hash where the target keeps them whole. For
// typed columns the target converts the present view as for a write and compares the values,
// if the view still has the delivered content. Values that the projection does not compare, or
// that are the same by its rules, do not differ. NotCompared counts the rest.
//
// # Repair
//
// Nothing here writes to a target. The caller receives missing, stale, different and retracted
// entities and requests their decision by force: the present document is sent, under a new
// version (I10). Rows without a dam row, and rows ahead of it, are removed by hand.
package reconcile
