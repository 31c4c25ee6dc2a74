package file

import (
	"context"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Config appends one JSON object per change to a file.
type Config struct {
	// Path of the file. Folders are created.
	Path string `yaml:"path" path:"true" required:"true"`
}

// Kind implements config.Sink.
func (*Config) Kind() string { return "file" }

// DeliveryMode implements config.Sink.
func (*Config) DeliveryMode() string { return config.KindLog }

// Check implements config.Sink.
func (*Config) Check(*config.Checker, *config.Delivery) {}

// Identity implements config.Sink.
func (c *Config) Identity(portable func(string) string) []any { return []any{portable(c.Path)} }

// Target implements config.Sink.
func (c *Config) Target(*config.Cluster) config.Target {
	return config.Target{Key: "path", Name: config.FileTarget(c.Path)}
}

// OutputFile implements config.FileWriter.
func (c *Config) OutputFile() string { return c.Path }

// Make implements kind.Sink.
func (c *Config) Make(kind.Env) (sinks.Sink, error) { return New(c.Path), nil }

// WithoutSecrets implements kind.Sink.
func (c *Config) WithoutSecrets() kind.Sink { return c }

// Ask implements reach.Target.
func (c *Config) Ask(context.Context, func(config.Cluster) (transport.Config, error)) error {
	return reach.Folder(c.Path)
}
