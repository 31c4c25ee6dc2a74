package assemble

import (
	"errors"
	"log/slog"
	"os"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Check finds faults in settings that only the sinks can judge: column types, partition keys,
// names of tables. It needs no network and no secrets: URLs are checked by the configuration and
// not read here. Its error is a *config.Faults with every fault.
func Check(c *config.Config) error {
	made := &Sinks{Config: c, Logger: slog.New(slog.DiscardHandler)}
	return checkSinks(c, func(s config.Service) (sinks.Sink, error) {
		k, ok := s.Delivery.Sink.(kind.Sink)
		if !ok {
			return nil, nil
		}
		bare := k.WithoutSecrets()
		if bare == nil {
			return nil, nil
		}
		sink, err := made.makeOf(s.Name, bare)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return sink, err
	})
}

// checkSinks makes the sink of every service and closes it. A service without one to check has nil.
func checkSinks(c *config.Config, newSink func(config.Service) (sinks.Sink, error)) error {
	var faults []config.Fault
	for _, s := range c.Services() {
		sink, err := newSink(s)
		if err == nil && sink != nil {
			err = sink.Close()
		}
		if err != nil {
			at := s.Delivery.Pos
			faults = append(faults, config.Fault{File: at.File, Line: at.Line, Column: at.Column, Path: "deliver." + s.Delivery.Name, Problem: err.Error()})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &config.Faults{List: faults}
}

// SinkKinds returns the kinds of the sinks, by service.
func SinkKinds(c *config.Config) map[string]sinks.Kind {
	kinds := map[string]sinks.Kind{}
	for _, s := range c.Services() {
		kinds[s.Name] = sinks.Kind(s.Delivery.DeliveryMode())
	}
	return kinds
}
