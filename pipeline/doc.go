// Package pipeline runs one process: it starts the stages, monitors them, reloads
// the configuration and shuts down. Each stage has a package of its own; package assemble
// compiles configurations.
//
// [Open] connects store, gate and logs (Kafka, or tables of the SQLite file), creates
// topics and tables, and compiles the configuration. Run starts the stages of
// the process's roles, each as one Watermill router, and ends them in the order
// of the flow, so that work in progress is finished.
//
// A [Pipeline] opens connections, makes the components over them and runs these: the inbox
// manager, the stages under their supervisors, the monitor, the idle check, retention, the
// API, the operators' listener and the reloader. Each has options of its own. [Attach] opens
// the same state for a command.
package pipeline
