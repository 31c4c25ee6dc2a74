// Package imports takes files into a source: JSON Lines and CSV of any size, as
// jobs that a kill does not lose.
//
// # Model
//
// [Receive] reads a file once. It cuts it into rows, packs whole rows into
// chunks, stores each chunk as it goes, and seals the import with the file's
// SHA-256, by which the same file is known when it is sent again. Nothing of the
// file stays in memory but the chunk under way.
//
// A [Worker] takes sealed imports by leases, of each source one at a time, and
// works chunk by chunk:
//
//	rows ─ events ─ [Taker]: claim, hand on, wait until durable ─ one step in the store
//
// The step holds where the import is, the counts and the results of rows, in one
// transaction. A worker that dies leaves a lease that ends; another one does the
// chunk again.
//
// # Guarantee
//
// Every valid row has its effect once. Each goes under a claim of the ledger
// (by its event id, or by import and number where the source has none), so a
// chunk that is done again, or by two workers at the same time, repeats no
// effect, and results tell what became of a row when it came first. Rows of a
// file are taken in their order; of a source one file is worked on at a time.
// What is wrong with a row is a result and not a failure.
//
// Format of rows: JSON Lines has one value per line (UTF-8, a byte order mark
// and carriage returns before line ends are dropped, lines of white space are
// skipped). CSV is RFC 4180 as package encoding/csv reads it, with a header row;
// see [Options].
package imports
