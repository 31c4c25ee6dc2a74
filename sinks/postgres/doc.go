// Package postgres writes the changes of one service into a PostgreSQL table,
// version 12 or later.
//
// # Model
//
// There are two modes.
//
//   - Upsert (a [sinks.State] sink): one row per (service, entity), the newest
//     version of it. A retraction is a row with is_deleted = true and no
//     document, so that an older change that comes late finds something newer
//     and has no effect. The view <table>_current leaves such rows out.
//   - Append (a [sinks.Log] sink): one row per change, numbered by seq in the
//     order of arrival. A repeated change is known by its primary key
//     (key, changed_at); the time comes from the change itself, so one key
//     always has one time.
//
// Beside service, entity, version, is_deleted, key, changed_at and synced_at
// the table holds the document: whole in the column doc, or spread over typed
// columns that name a path in it. Several services may share one table.
//
// With a retention, an append table is partitioned by month of changed_at.
// Partitions are created ahead and on demand, and dropped as a whole once
// every row that they could hold is older than the retention.
//
// # Delivery guarantee
//
// When Write returns nil, every change of the batch is committed or was there before. An attempt
// may be repeated any number of times, by any number of processes, with the effect of one. In
// upsert mode a version at or below the stored one never has an effect. In append mode one key is
// stored once.
//
// A row that the table refuses (SQLSTATE classes 22, 23 and 54: a value that
// does not fit its column, a constraint, a text that jsonb cannot hold) is
// found by splitting the batch, and only that row fails. So is a row that takes longer than
// the server's statement_timeout or a lock of five seconds. When more than 20
// rows come and every one is refused by the same column, constraint or rule,
// the table does not fit (it was altered): the service pauses.
//
// Dates, times and decimals in typed columns are read here, strictly. Each transaction sets
// TimeZone, DateStyle, IntervalStyle and lc_monetary, so that servers, databases and roles
// with other settings read the same values. No prepared statements are used and nothing
// outlasts a transaction: a pooler in transaction mode may be between.
//
// In append mode with a retention, a change that is repeated after its partition was dropped is
// written again. README.md has the assumptions, of which one is that no trigger changes version or key,
// and the limits of these promises.
package postgres
