// Package pipeline runs one process: it starts the stages, monitors them, reloads
// the configuration and shuts down. What a stage does stands in its package; what
// a configuration means stands in package assemble.
//
// [Open] connects store, gate and logs (Kafka, or tables of the SQLite file), creates
// topics and tables, and compiles the configuration. Run starts the stages of
// the process's roles, each as one Watermill router, and ends them in the order
// of the flow, so that what is in hand is finished.
package pipeline
