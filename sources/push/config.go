package push

import (
	"cmp"
	"context"
	"regexp"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sources"
)

// Config takes events that are posted to the API.
type Config struct {
	// Path is the name in the URL, /v1/sources/<path>/events. Defaults to the
	// source's name.
	Path string `yaml:"path"`
	// MaxBody is the largest request.
	MaxBody config.Size `yaml:"max_body" default:"16MiB" range:"1KiB..1GiB"`
	// Token that requests must carry as a bearer token, at least 16 characters.
	// Required if the listener is reachable beyond loopback.
	Token config.Secret `yaml:"token"`
}

// Kind implements config.SourceConfig.
func (*Config) Kind() string { return "http" }

// ApplyDefaults implements config.SourceDefaults.
func (c *Config) ApplyDefaults(s *config.Source, _ *config.Config) {
	c.Path = cmp.Or(c.Path, s.Name)
}

// CheckLocators implements config.SourceConfig: a request has headers and no key.
func (*Config) CheckLocators(c *config.Checker, s *config.Source) { c.RefuseKeys(s) }

var urlName = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9._~-]*$`)

// Check implements config.SourceConfig.
func (c *Config) Check(check *config.Checker, s *config.Source) {
	check.Token("token", c.Token)
	if check.Known("path") && !urlName.MatchString(c.Path) {
		check.Fault("path", "is not a name in a URL", "letters, digits, ., _, ~ and -")
	}
	if first, taken := check.Claim("path "+c.Path, ""); taken {
		check.Fault("path", "is the path of "+first+" too", "a path of its own")
	}
	// A posted event has no position, so nothing else tells an old one.
	if s.Mode == config.Patch && s.EventID.IsZero() && s.Sequence.IsZero() {
		check.FaultBeside("mode", "would apply a patch again that is posted again", "event_id or sequence beside it")
	}
}

// Reads implements config.SourceConfig.
func (*Config) Reads(*config.Cluster) string { return "" }

// Endpoint implements config.HTTPSource.
func (c *Config) Endpoint() config.Endpoint {
	return config.Endpoint{Path: c.Path, MaxBody: c.MaxBody, Token: c.Token}
}

// Open implements sources.Kind.
func (*Config) Open(_ context.Context, e sources.Env) (sources.Source, error) {
	return New(Options{Name: e.Name}), nil
}
