// Package clickhouse writes the changes of one service into a ClickHouse
// table, over the native protocol or HTTP.
//
// # Model
//
// The table is a ReplacingMergeTree(version, is_deleted), or, on servers before 23.2, a
// ReplacingMergeTree(version), ordered by (service, entity). Every change is a row. Of the rows
// of one (service, entity) the engine keeps the one with the highest version, at some later time.
// A query that must not see the others asks with FINAL. The view <table>_current does that, and
// leaves out retracted entities. A retraction is a row with is_deleted = 1 and no document.
//
// Beside service, entity, version, is_deleted, key, changed_at and synced_at
// the table holds the document: whole in the String column doc, or spread over
// typed columns that name a path in it. Several services may share one table.
//
// The engine replaces only inside one partition, so a partition key may depend
// on nothing but service and entity. [Sink.Open] refuses any other.
//
// # Delivery guarantee
//
// When Write returns nil, the server has written every change of the batch. The sink is a
// [sinks.State] sink: through FINAL or the view, an attempt may be repeated any number of times,
// late and in any order, with the effect of one, because the highest version decides. Where the
// server knows it (22.2 and later), each insert carries insert_deduplication_token, made from the
// keys of its changes, so that a repeated batch usually adds no rows at all. Nothing depends on
// that.
//
// A value that its column does not take is found before anything is sent, and
// only that change is refused. A row that the server refuses for its data (a
// constraint, say) is found by splitting the batch, and so is what takes more memory, rows
// or time than the server, or the user's settings, allow one statement. When more than 20
// changes come and the server refuses every one for the same reason, the table does not fit
// (it was altered): the service pauses.
//
// An insert is not atomic over partitions: after a failure some of its changes may be visible. They
// are repeated. Asynchronous inserts are switched off, since their acknowledgement comes before the
// rows are kept. README.md has the assumptions about table and server.
package clickhouse
