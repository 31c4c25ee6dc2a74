// Package postgres reads tables of a PostgreSQL database, 14 or later, by logical replication
// (pgoutput, protocol version 2). Each table is a source; the sources of one slot share a [Reader].
//
// # Protocol
//
// A session of the reader:
//
//	lock the slot ─ take a number ─ barrier, decided ─ compare slot, mark and accepted places: gap? ─
//	changes from the slot on, and between them pieces of the rows of tables that lack them
//
// Number. The lock is not enough: its connection may end while the reader streams on. Each session
// takes the next number in the slot's row of the store, by compare-and-swap, and appends a barrier
// with it to every partition of the inbox. Behind the barrier decide takes no event of another
// session. Everything that a session stores, also the marks of tables, is swapped with that row: a
// session whose number is not the newest any more stores and confirms nothing. Decisions
// before the barrier are read back: a place that the database or the row does not have is a gap.
//
// Place. Every event has one: a stream, the commit position (LSN) of its transaction, and its
// index in that. The stream names system identifier, database, epoch and the timeline that has
// the position, by the cluster's history. The fence of an entity compares places of one stream,
// so a change that is sent again is stale. A change that a promoted server sends again has its old
// timeline and is stale; a change that replaced one that the server lost has the new one.
// Streams have an order, the events' sequence: epochs by the number of the session that began them,
// timelines by their own.
//
// Rows. They are read in pieces of some seconds, and changes between them. Each piece has a snapshot
// that a temporary slot exports at position L, which holds exactly the transactions that committed before
// L. Its events have the place (L-1, 0): a change before L is stale behind them, a change from L on is
// not. The slot is older than the first piece, so no change between rows and changes is missing; changes
// before it are left out. Primary keys divide a table into ranges, which several connections read; the
// store has each range's last durable key. Rows of later pieces, also after a kill, are read at L' > L.
// Rows of all pieces and the changes between them have the order of their places, so an older row never
// overwrites a newer change. No change is read during a piece: a change from L on never comes before the
// piece's rows, whose entity it may have deleted long ago. Up to the last piece, a change that leaves a
// large value alone may come before the row, so the value is read by the row's key.
//
// Changes. A transaction is handed out in the order of commits; a large one that the server
// streams before its end is spilled to a file, and rolled back subtransactions are left out. A
// batch holds what arrived while the one before was in work. Records for a partition of the inbox
// that takes nothing are set aside, and later batches pass; rows that were set aside are read again,
// and when a record that was set aside is refused, the next session reads it again. A TRUNCATE, and a
// session that begins, wait for that partition.
//
// Confirmation. When a batch and all before it are durable in the inbox, its end is stored as the mark
// and then confirmed to the server, in this order. So the slot never is ahead of the mark, unless
// something else moved it.
//
// Gap. A new epoch begins, and all rows are read again, if the slot is ahead of the mark (it was
// re-created, another program has read it, or the store was restored); if the cluster's history
// lacks the mark or a place that was decided (commits were lost by a fail-over); if the log ends
// before these, or lacks the last transaction that was read (the database was restored, and may have
// grown since); if the row of the slot lacked a session that was decided, or its epoch (the store
// was restored); if cluster, database or slot are other ones. The slot moves by the changes of the
// session, not by the mark. An epoch has a random name.
//
// After a gap, or with a slot that the store does not know, stored entities without a row are deleted
// at the place of the first rows. The
// deletion of an entity whose row was read is stale.
//
// Identity. A table's mark says which table the rows were read of: OID, files, columns by number,
// entry in the publication, leaves, entity. It is compared at each session's start, by a look at the
// catalog every 5 seconds, and at each description of the table in the log. After a difference that
// the log does not have, and after a session without the table, its rows are read again, stored
// entities without a row are deleted. A table is locked before a piece of it is read, and compared
// with the catalog of the snapshot, since a rewrite between the two empties it there. An update leaves a large value alone of a column,
// not of a name: the mark has all names that each column had since the rows.
//
// # Delivery guarantee
//
// At least once into the inbox, in order per entity and table; once in effect, by the fence. An
// entity is one row of a table: of several rows with one id the last change counts.
//
// An update that leaves a large value alone (TOAST) names the column as unchanged, and decide
// takes the stored value. A TRUNCATE is the deletion of all stored entities of its table. They share
// its place, and are listed when every earlier change is decided. A value that has no JSON becomes a
// dead letter. A table that cannot be read costs itself only; its rows are read again when it can.
//
// Children and look-ups of other tables have no place here yet: a reader emits events by table,
// and joins belong behind it.
package postgres
