// Package pipeline runs one process: it starts the stages, monitors them, reloads
// the configuration and shuts down. What a stage does stands in its package; what
// a configuration means stands in package assemble.
//
// [Open] connects store, gate and logs (Kafka, or tables of the SQLite file), creates
// topics and tables, and compiles the configuration. Run starts the stages of
// the process's roles, each as one Watermill router, and ends them in the order
// of the flow, so that what is in hand is finished.
//
// A [Pipeline] joins parts that share what the process has open (process): the
// generations of the inbox, the stages, the monitor that keeps gauges and probes and
// knows what is left to do, the front door that serves the API, the operators'
// listener, and the reloader.
package pipeline
