// Package imports loads files of JSON Lines or CSV into a source. The file itself is not
// stored.
//
// # Model
//
// [Run] reads a file once, from its start, and cuts it into rows. A [Desk] ingests them batch by
// batch, beside a running process: it claims the rows' keys in the ledger and
// appends their events, as it does for posted ones, and records the refused rows and the
// position behind the batch in one transaction.
//
//	file ─ rows ─ [Batch] ─ [Desk]: claim, append, answer ─ dead letters and position
//
// The import is identified by tenant, source, format, options and the file's SHA-256. The same
// file continues it: rows up to the position are cut and not ingested. Any number of runs may
// import one file at a time: each position is reached once.
//
// # Guarantee
//
// Every valid row has its effect once, in the order of the file. Its key in the ledger is its
// event id, or import and row number where the source has none: rows between the position
// and a crash repeat no effect and keep their results. A row that is refused is a dead letter
// of stage ingest with import, row and line in its headers.
//
// Format of rows: JSON Lines has one value per line (UTF-8; a byte order mark, carriage
// returns before line ends and blank lines are skipped). CSV is RFC 4180 with a header row; see
// [Options].
package imports
