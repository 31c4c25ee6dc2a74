// Package outbox reads a table of a PostgreSQL database (13 or later) in which
// an application writes its events, in the same transaction as the state that
// they are about: a transactional outbox. It is a Watermill subscriber whose
// messages carry a transport.Frame.
//
// # Model
//
// A [Source] works in takes. Each is one transaction:
//
//	lock rows, skipping what others have locked ─ leave out rows behind an older one that is
//	not in this take ─ hand out as a frame, or a few ─ all durable in the inbox ─ delete them ─ commit
//
// So a row goes only after its event is durable, and any number of processes
// may read side by side.
//
// # Order
//
// Rows of one entity are handed out in the order of their ids, as far as they
// are committed when they are looked at: no row is taken while an older one of
// its entity waits, is in flight in another process, or is locked by a
// transaction. The check is a statement of its own after the locks were
// taken, so it sees commits in between.
//
// Ids are given out before a transaction commits, so a row may become visible
// behind newer ones: README.md says when. It is handed out then, and never dropped,
// since the position of an event is not made of the row's id: the fence
// would take a late row for a repetition. It is the place in the
// database's log (LSN) at which the rows were taken, and grows with the takes of
// an entity with any ids: a take of an entity's row has seen the commit of the
// take before.
//
// # Delivery guarantee
//
// At least once into the inbox, in the order above; once in effect. A process
// that dies between the append and the commit leaves rows that the next one
// hands out again. Their event ids are the same, and the fence of the entity
// knows its last eight; so no more than eight rows of an entity are in
// flight. Rows that a process appends after it lost its connection, while others
// continued, have an older position: the fence drops them, however late they are.
//
// # Assumptions
//
//   - The id column is unique, not null, and, unless an order column or a sequence is
//     configured, ordered as the events of an entity are. A sequence with CACHE above 1
//     is not; random UUIDs are refused.
//   - A row does not change after it was written.
package outbox
