package assemble

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
)

// Check finds what only the sinks themselves can tell of their settings:
// column types, partition keys, names of tables. It needs no network and no
// secrets: URLs are checked by the configuration and are not looked at here.
// Its error is a *config.Faults with every fault.
func Check(c *config.Config) error {
	made := &Sinks{Config: c, Logger: slog.New(slog.DiscardHandler)}
	var faults []config.Fault
	for _, s := range c.Services() {
		if s.Delivery.Kafka != nil {
			continue // its settings are checked by the configuration
		}
		s.Delivery = withoutSecrets(s.Delivery)
		sink, err := made.make(s)
		if err == nil {
			err = sink.Close()
		}
		if err == nil || errors.Is(err, os.ErrNotExist) {
			continue
		}
		faults = append(faults, config.Fault{
			File: s.Delivery.Pos.File, Line: s.Delivery.Pos.Line, Column: s.Delivery.Pos.Column,
			Path: "deliver." + s.Delivery.Name, Problem: err.Error(),
		})
	}
	if len(faults) == 0 {
		return nil
	}
	return &config.Faults{List: faults}
}

// withoutSecrets gives a delivery with something in the place of URLs and
// secrets, whose variables need not be set on this machine.
func withoutSecrets(d *config.Delivery) *config.Delivery {
	copied := *d
	if d.Webhook != nil {
		w := *d.Webhook
		w.URL = config.NewSecret("https://unset.invalid")
		w.Secret = nil
		w.Headers = nil
		w.TLS = nil // its files are checked by the configuration
		copied.Webhook = &w
	}
	if d.ClickHouse != nil {
		k := *d.ClickHouse
		k.URL = config.NewSecret("clickhouse://unset.invalid:9000/default")
		copied.ClickHouse = &k
	}
	if d.Postgres != nil {
		k := *d.Postgres
		k.URL = config.NewSecret("postgres://unset.invalid/unset")
		copied.Postgres = &k
	}
	return &copied
}

// SinkKinds asks sinks that are made, and not opened, what they keep, by service.
func SinkKinds(c *config.Config) (map[string]sinks.Kind, error) {
	kinds := map[string]sinks.Kind{}
	made := &Sinks{Config: c, Logger: slog.New(slog.DiscardHandler)}
	for _, s := range c.Services() {
		switch {
		case s.Delivery.Kind != "":
			kinds[s.Name] = sinks.Kind(s.Delivery.Kind)
			continue
		case s.Delivery.Kafka != nil:
			kinds[s.Name] = sinks.Log
			continue
		}
		s.Delivery = withoutSecrets(s.Delivery)
		sink, err := made.make(s)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", s.Name, err)
		}
		kinds[s.Name] = sink.Traits().Kind
		if err := sink.Close(); err != nil {
			return nil, fmt.Errorf("service %s: %w", s.Name, err)
		}
	}
	return kinds, nil
}
