// Package assemble turns a configuration into the parts that a process runs: the plan of
// decisions, the shapes of sources, sinks, store, gate, and how the clusters are reached. It
// starts nothing. Package pipeline runs the parts.
package assemble
