// Package sqlsink is the common part of sinks that write tables: reading values of
// documents for typed columns, and splitting a batch that the database does not take.
//
// A statement fails for one row (a constraint), for its size (memory, a time-out), or for
// the state of the server. [Writer] splits it in the first two cases, for any class of
// error, so that only the row to blame fails. Before it splits a statement that was
// too much, it writes one row alone: if two of these fail alike and nothing else
// succeeded, the server is to blame, and the whole Write fails.
package sqlsink
