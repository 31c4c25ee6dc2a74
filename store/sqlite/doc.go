// Package sqlite keeps Weir's state in one SQLite file, for a single machine
// without servers.
//
// # Model
//
// SQLite has one writer. All writes of a handle pass one connection, and each
// transaction takes the file's write lock when it begins (BEGIN IMMEDIATE), so
// it sees nothing move while it runs; other handles, in this process or another, wait
// for it. A decision is computed before, from a snapshot, and its transaction compares
// its inputs. Readers have connections of their own and, in WAL
// mode, wait for no writer. Statements run prepared, once per row: inside one
// process that is as fast as passing a batch as JSON, and simpler.
//
// # Guarantee
//
// journal_mode = WAL with synchronous = FULL: a commit is on disk when it
// returns. A full disk is of class Retry: nothing was written, and the same
// succeeds when there is space again. A failed write or sync of the commit
// itself leaves the outcome unknown.
package sqlite
