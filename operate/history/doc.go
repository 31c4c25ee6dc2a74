// Package history remembers a day of what sources and services did, in minutes,
// and which processes of a deployment there are.
//
// # Model
//
// A [Recorder] takes a snapshot of the process's own counters every few seconds
// and adds what grew since the last one to the minute that it is. Minutes are
// kept in memory, an hour to a chunk, and once a minute what is new goes into the
// store's report of that hour. All processes add to the same reports, so the
// history is that of the deployment, however many processes there are and however
// often they restart; a kill loses the last minute of it. Levels, such as what
// waits, are the highest that a process saw.
//
// The last quarter of an hour is kept in finer steps as well, in memory alone and
// of this process alone.
//
// # Bounds
//
// 24 hours, and [MaxSeries] sources and services; those beyond are in the sums
// alone. Nothing that decides or delivers reads any of it.
package history
