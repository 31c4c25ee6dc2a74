package assemble

import (
	"context"
	"fmt"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/transport"
)

// Sources opens the sources of a configuration.
type Sources struct {
	Config *config.Config
	// Cluster is the main cluster, for sources that name none.
	Cluster transport.Config
	// Env is what all sources are opened with; the fields of one are filled in.
	Env sources.Env
}

// Open opens one source.
func (a *Sources) Open(ctx context.Context, s *config.Source) (sources.Source, error) {
	k, ok := s.Input.(sources.Kind)
	if !ok {
		return nil, fmt.Errorf("source %s has no input", s.Name)
	}
	e := a.Env
	e.Name, e.MaxEvent, e.SessionTimeout = s.Name, int(s.MaxEvent), a.Config.Kafka.SessionTimeout.D()
	e.Cluster = func(own config.Cluster) (transport.Config, error) {
		if len(own.Brokers) == 0 {
			return a.Cluster, nil
		}
		cluster, _, err := Cluster(a.Config, own, e.Logger)
		return cluster, err
	}
	return k.Open(ctx, e)
}
