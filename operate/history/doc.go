// Package history keeps a day of the work of sources and services, in minutes, and the list of
// the deployment's processes.
//
// # Model
//
// A [Recorder] takes a snapshot of the process's own counters every few seconds and adds the
// increase to the current minute. Minutes are kept in memory, an hour to a chunk. Once a minute
// the increase is added to the store's report of that hour. All processes add to the same
// reports, so the history is that of the deployment and survives restarts. A kill loses the last
// minute. Gauges, such as queue lengths, keep the highest value that a process saw.
//
// The last quarter of an hour is also kept in finer steps, in memory and of this process alone.
//
// # Bounds
//
// 24 hours, and [MaxSeries] sources and services; those beyond are in the sums alone. No stage
// of the flow reads it.
package history
