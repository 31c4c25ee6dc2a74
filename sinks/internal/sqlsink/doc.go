// Package sqlsink is the common part of sinks that write tables.
package sqlsink
