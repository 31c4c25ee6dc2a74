// Package imports streams files of JSON Lines or CSV into a source. The file itself is
// not stored.
//
// # Model
//
// An [Importer] reads a file once, from its start, and cuts it into rows. Batches of rows
// become events: claimed in the ledger, appended to the inbox, answered, and only then
// recorded in the store, results and position in one transaction.
//
//	file ─ rows ─ batch ─ [Taker]: claim, append, answer ─ results and position
//
// The job is identified by tenant, source, format, options and content: the file's SHA-256,
// or an id of the client. The same file posted again continues it: rows up to the position
// are cut and not ingested; a hash over them proves that the content is the same.
// An interrupted import stays incomplete until then, or until its retention ends.
// A later request takes the job over, as a partition's owner does: its attempt fences the
// earlier one, which makes no further step.
//
// # Guarantee
//
// Every valid row has its effect once, in the order of the file. Its claim has the event id
// as key, or job and row number where the source has none: rows between the position and a
// crash repeat no effect and keep their results. An invalid row is a result, not a failure.
//
// Format of rows: JSON Lines has one value per line (UTF-8; a byte order mark, carriage
// returns before line ends and blank lines are skipped). CSV is RFC 4180 as package
// encoding/csv reads it, with a header row; see [Options].
package imports
