package assemble

import (
	"github.com/seed-86dfc502/weir/config"
	sinkkinds "github.com/seed-86dfc502/weir/sinks/registry"
	sourcekinds "github.com/seed-86dfc502/weir/sources/registry"
)

// Kinds are all kinds of sources and sinks.
func Kinds() (k config.Kinds) {
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
	return config.Load(path, env, Kinds(), append(options, config.DefaultMemory(defaultMemory(AvailableMemory())))...)
}
