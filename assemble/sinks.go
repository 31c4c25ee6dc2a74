package assemble

import (
	"fmt"
	"log/slog"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Sinks makes the sinks of a configuration; none of them connects before it is
// opened. Its methods may be called concurrently.
type Sinks struct {
	Config *config.Config
	Logger *slog.Logger
	// Targets are the clients that the sinks share. Nil means that each sink has its own.
	Targets *sinks.Targets
	// StoreID tells the store apart from all others. Sinks that only read need none.
	StoreID string
}

// New makes the sink of a service.
func (a *Sinks) New(s config.Service) (sinks.Sink, error) {
	sink, err := a.makeOf(s.Name, s.Delivery.Sink)
	if err != nil {
		return nil, err
	}
	if keeps := s.Delivery.Kind; keeps != "" && sinks.Kind(keeps) != sink.Traits().Kind {
		if r, ok := sink.(sinks.Recoverer); ok {
			return resumedOfKind{r, ofKind{sink, sinks.Kind(keeps)}}, nil
		}
		return ofKind{sink, sinks.Kind(keeps)}, nil
	}
	return sink, nil
}

// Check creates and closes the sinks of the services for which of returns true. It finds the
// faults that show without a server.
func (a *Sinks) Check(of func(config.Service) bool) error {
	return checkSinks(a.Config, func(s config.Service) (sinks.Sink, error) {
		if !of(s) {
			return nil, nil
		}
		return a.New(s)
	})
}

// ofKind feeds a sink as the configuration wants it: a log sink may be told
// that the newest change of an entity is enough.
type ofKind struct {
	sinks.Sink
	kind sinks.Kind
}

// resumedOfKind is ofKind of a sinks.Recoverer.
type resumedOfKind struct {
	sinks.Recoverer
	of ofKind
}

func (k resumedOfKind) Traits() sinks.Traits { return k.of.Traits() }

func (k ofKind) Traits() sinks.Traits {
	t := k.Sink.Traits()
	t.Kind = k.kind
	t.Guarded = false // the guard of a log is its keys; a state needs the versions
	return t
}

func (a *Sinks) makeOf(service string, of config.Sink) (sinks.Sink, error) {
	k, ok := of.(kind.Sink)
	if !ok {
		return nil, fmt.Errorf("service %s has no sink", service)
	}
	return k.Make(a.env(service))
}

func (a *Sinks) env(service string) kind.Env {
	return kind.Env{
		Service: service, Pipeline: a.Config.Kafka.Prefix + "." + a.StoreID, Logger: a.Logger, Targets: a.Targets,
		Cluster: func(own config.Cluster) (transport.Config, string, error) {
			return Cluster(a.Config, own, a.Logger)
		},
		MaxMessage: int(a.Config.Limits.Change) + recordOverhead,
	}
}
