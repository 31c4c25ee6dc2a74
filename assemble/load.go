package assemble

import (
	"github.com/seed-86dfc502/weir/config"
	sinkkinds "github.com/seed-86dfc502/weir/sinks/registry"
	sourcekinds "github.com/seed-86dfc502/weir/sources/registry"
)

// Registry returns all kinds of sources and sinks.
func Registry() (k config.Registry) {
	for _, s := range sourcekinds.Kinds() {
		k.Sources = append(k.Sources, s)
	}
	for _, s := range sinkkinds.Kinds() {
		k.Sinks = append(k.Sinks, s)
	}
	return k
}

// Load is config.Load with all kinds and the memory of this machine.
func Load(path string, env func(string) (string, bool), options ...config.Option) (*config.Config, error) {
	return config.Load(path, env, Registry(), append(options, config.DefaultMemory(defaultMemory(AvailableMemory())))...)
}
