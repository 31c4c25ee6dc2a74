// Package pipeline runs one process: it starts the stages, monitors them, reloads
// the configuration and shuts down. Each stage has a package of its own; package assemble
// compiles configurations.
//
// [Open] connects store, gate and logs (Kafka, or tables of the SQLite file), creates
// topics and tables, and compiles the configuration. Run starts the stages of
// the process's roles, each as one Watermill router, and ends them in the order
// of the flow, so that work in progress is finished.
//
// A [Pipeline] joins components over the open state of the process: the manager of the
// inbox, the stages, the monitor, the front door for the API, the operators' listener, and
// the reloader. [Attach] opens the same state for a command.
package pipeline
