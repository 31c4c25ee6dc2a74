package assemble

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/transport"
)

// Probe is the result of a connection to one server or folder of a configuration.
type Probe struct {
	// What it is: store, gate, kafka, source NAME, or a service.
	What string `json:"what"`
	// Error is empty when it answers, or is there.
	Error string `json:"error,omitempty"`
}

// resolveTimeout bounds the answer of each.
const resolveTimeout = 10 * time.Second

// Resolve asks everything that a configuration names whether it is there: servers
// for an answer under the configured user, files whether they can be read or made.
// It changes nothing: no table, no topic, no request to a webhook. The order is that
// of the configuration. References must have been resolved when it was loaded.
func Resolve(ctx context.Context, c *config.Config) []Probe {
	type question struct {
		what string
		ask  func(ctx context.Context) error
	}
	var all []question
	ask := func(what string, f func(ctx context.Context) error) { all = append(all, question{what, f}) }
	cluster := func(own config.Cluster) (transport.Config, error) {
		of, _, err := Cluster(c, own, slog.New(slog.DiscardHandler))
		return of, err
	}
	ask("store", func(ctx context.Context) error {
		if p := c.Store.Postgres; p != nil {
			return reach.Postgres(ctx, p.URL.Reveal())
		}
		return reach.Folder(c.Store.SQLite.Path)
	})
	if c.Gate.Valkey != nil {
		ask("gate", func(ctx context.Context) error {
			g, err := Gate(c)
			if err != nil {
				return err
			}
			return errors.Join(g.Ping(ctx), g.Close())
		})
	}
	if len(c.Kafka.Brokers) > 0 {
		ask("kafka", func(ctx context.Context) error {
			of, err := cluster(c.Kafka.Cluster)
			if err != nil {
				return err
			}
			return reach.Topic(ctx, of, c.Kafka.Inbox.Topic, true)
		})
	}
	for i := range c.Sources {
		if a, ok := c.Sources[i].Input.(reach.Asked); ok {
			ask("source "+c.Sources[i].Name, func(ctx context.Context) error { return a.Ask(ctx, cluster) })
		}
	}
	for _, s := range c.Services() {
		if a, ok := s.Delivery.Sink.(reach.Asked); ok {
			ask(s.Name, func(ctx context.Context) error { return a.Ask(ctx, cluster) })
		}
	}
	found := make([]Probe, len(all))
	few := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i, q := range all {
		few <- struct{}{}
		wg.Go(func() {
			defer func() { <-few }()
			ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
			defer cancel()
			found[i].What = q.what
			if err := q.ask(ctx); err != nil {
				found[i].Error = strings.Join(strings.Fields(err.Error()), " ")
			}
		})
	}
	wg.Wait()
	return found
}
