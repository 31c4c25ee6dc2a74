package assemble

import (
	"context"
	"fmt"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources"
)

// OpenSource opens a source of a configuration. e is what all sources are opened with. The fields
// of one are filled in.
func OpenSource(ctx context.Context, c *config.Config, s *config.Source, e sources.Env) (sources.Source, error) {
	k, ok := s.Input.(sources.Kind)
	if !ok {
		return nil, fmt.Errorf("source %s has no input", s.Name)
	}
	e.Name, e.MaxEvent = s.Name, int(s.MaxEvent)
	e.Cluster = func(own config.Cluster) (transport.Config, error) {
		cluster, _, err := Cluster(c, own, e.Logger)
		return cluster, err
	}
	return k.Open(ctx, e)
}
