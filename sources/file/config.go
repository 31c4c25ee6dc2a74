package file

import (
	"context"
	"os"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources"
)

// Config reads a file with one JSON event per line.
type Config struct {
	// Path of the file. It need not exist yet.
	Path string `yaml:"path" path:"true" required:"true"`
	// Linger is how long a replaced file must have been quiet before it is left: its writer
	// may add lines until it opens the new one.
	Linger config.Duration `yaml:"linger" default:"1s" range:"10ms..1h"`
}

// Kind implements config.SourceConfig.
func (*Config) Kind() string { return "file" }

// CheckLocators implements config.SourceConfig: a line has neither key nor headers.
func (*Config) CheckLocators(c *config.Checker, s *config.Source) {
	c.RefuseKeys(s)
	for key, at := range s.Locators() {
		if at.Header != "" {
			c.FaultBeside(key, "needs headers, which a file has not", "a gjson path")
		}
	}
}

// Check implements config.SourceConfig.
func (*Config) Check(*config.Checker, *config.Source) {}

// Reads implements config.SourceConfig.
func (c *Config) Reads(*config.Cluster) string { return config.FileTarget(c.Path) }

// Open implements sources.Kind.
func (c *Config) Open(_ context.Context, e sources.Env) (sources.Source, error) {
	return New(Options{
		Name: e.Name, Path: c.Path, Positions: e.Positions, Complete: e.Complete, MaxLine: e.MaxEvent,
		Linger: c.Linger.D(), OnLinesLost: e.OnRecordsLost, Logger: e.Logger,
	}), nil
}

// Ask implements reach.Target.
func (c *Config) Ask(context.Context, func(config.Cluster) (transport.Config, error)) error {
	f, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	return f.Close()
}
