// Package kind is the contract of a kind of sink: its configuration ([config.Sink]) and
// how a sink is made of it. A kind keeps both in its own package, and has one line in
// package registry.
package kind

import (
	"log/slog"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
)

// Sink is the configuration of a sink of one kind. Its methods change nothing and
// may be called concurrently.
type Sink interface {
	config.Sink
	// Make makes the sink. Nothing is connected before it is opened.
	Make(e Env) (sinks.Sink, error)
	// WithoutSecrets returns a copy with placeholders for URLs and secrets, whose variables need
	// not be set on this machine: Make then finds the faults that only the sink can find. It is
	// nil for a kind that config checks completely.
	WithoutSecrets() Sink
}

// Scannable is a Sink whose target can be read back.
type Scannable interface {
	Sink
	// ToRead returns a copy whose sink creates nothing in the target and drops nothing, and
	// reports whether the target expires old rows.
	ToRead() (copied Sink, forgets bool)
}

// Env holds the dependencies of a sink.
type Env struct {
	Service string // whose sink it is
	// Pipeline tells this pipeline apart from others that write to the same targets:
	// kafka.prefix and the store's id.
	Pipeline string
	Logger   *slog.Logger
	// Targets are the clients that the sinks of a process share.
	Targets *sinks.Targets
	// Cluster says how the cluster of a sink, or without brokers the main one, is
	// reached, and returns a text that changes with its certificates.
	Cluster func(own config.Cluster) (cluster transport.Config, identity string, err error)
	// MaxMessage is the largest record that a change makes, in bytes.
	MaxMessage int
}
