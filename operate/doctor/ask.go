package doctor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
)

// answer is the result of asking one server, source or target.
type answer struct {
	what      string // store, gate, kafka, source NAME, or a service
	err       error  // why it cannot be reached
	unchecked string // see reach.Partial
	advice    *reach.Advice
}

const (
	answerTimeout = 5 * time.Second // of each
	asksAtOnce    = 8
)

// Unreachable asks every server, source and target of a configuration for an answer, until ctx
// ends, and returns a line for each that does not answer. It changes nothing.
func Unreachable(ctx context.Context, c *config.Config) (all []operate.Item) {
	for _, a := range askAll(ctx, c) {
		if a.err != nil && !errors.Is(a.err, context.Canceled) {
			all = append(all, operate.Item{What: a.what, Level: operate.LevelDown, Why: oneLine(a.err), Do: remedy.Of(a.what, a.err)})
		}
	}
	return all
}

// askAll asks every server, source and target of a configuration, in its order: servers for
// an answer under the configured user, files whether they can be read or created. It changes
// nothing: no table, no topic, no request to a webhook.
func askAll(ctx context.Context, c *config.Config) []answer {
	var all []answer
	var asks []func(ctx context.Context) error
	ask := func(what string, f func(ctx context.Context) error) {
		all, asks = append(all, answer{what: what}), append(asks, f)
	}
	cluster := func(own config.Cluster) (transport.Config, error) {
		of, _, err := assemble.Cluster(c, own, slog.New(slog.DiscardHandler))
		return of, err
	}
	target := func(what string, kind any) {
		t, ok := kind.(reach.Target)
		if !ok {
			return
		}
		ask(what, func(ctx context.Context) error { return t.Ask(ctx, cluster) })
		if p, ok := kind.(reach.Partial); ok {
			all[len(all)-1].unchecked = p.Unchecked()
		}
	}
	ask("store", func(ctx context.Context) error {
		if p := c.Store.Postgres; p != nil {
			return reach.Postgres(ctx, p.URL.Reveal())
		}
		return reach.Folder(c.Store.File)
	})
	if c.Gate.Valkey != nil {
		ask("gate", func(ctx context.Context) error {
			g, err := assemble.Gate(c)
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
		target("source "+c.Sources[i].Name, c.Sources[i].Input)
	}
	for _, s := range c.Services() {
		target(s.Name, s.Delivery.Sink)
	}
	places := make(chan struct{}, asksAtOnce)
	var wg sync.WaitGroup
	for i := range all {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			if err := asks[i](ctx); !errors.As(err, &all[i].advice) {
				all[i].err = err
			}
		})
	}
	wg.Wait()
	return all
}
