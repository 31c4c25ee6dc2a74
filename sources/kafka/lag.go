package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/twmb/franz-go/pkg/kerr"
)

// patience is how long brokers may answer that a topic cannot be read before the source
// fails: an election is shorter.
const patience = 15 * time.Second

// lag knows the backlog of a topic, and whether the topic can be read.
type lag struct {
	topic string
	ask   func(ctx context.Context) ([]transport.PartitionLag, error)
	log   *slog.Logger

	mu    sync.Mutex
	since time.Time // guarded by mu; when it was first found that it cannot be read
	err   error     // guarded by mu; nil while it can be read

	held      int64     // guarded by mu; records behind an open transaction
	heldSince time.Time // guarded by mu
	warned    bool      // guarded by mu; of held
}

// Topic implements sources.Source.
func (l *lag) Topic() string { return l.topic }

// Pending implements sources.Log. Of a topic with transactions it is an upper bound.
func (l *lag) Pending(ctx context.Context) (n int64, err error) {
	lags, err := l.ask(ctx)
	l.observe(err, time.Now())
	var held int64
	for _, of := range lags {
		n += of.Pending()
		held += of.Held()
	}
	if err == nil {
		l.observeHeld(held, time.Now())
	}
	return n, err
}

// heldTooLong is how long a transaction may stay open before it is worth a warning:
// Kafka's producers end theirs within a minute by default.
const heldTooLong = time.Minute

// observeHeld notes the records behind an open transaction, and warns of one that stays.
func (l *lag) observeHeld(held int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case held == 0:
		if l.warned {
			l.log.Info("the open transaction ended", "event", "source.transaction_ended", "topic", l.topic)
		}
		l.warned = false
	case l.held == 0:
		l.heldSince = now
	case !l.warned && now.Sub(l.heldSince) >= heldTooLong:
		l.warned = true
		l.log.Warn("a producer left a transaction open: records behind its start cannot be read before it ends (kafka-transactions.sh find-hanging)",
			"event", "source.open_transaction", "topic", l.topic, "records", held, "since", l.heldSince.UTC())
	}
	l.held = held
}

// Held implements sources.Transactional.
func (l *lag) Held() (records int64, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, l.heldSince
}

// observe notes the brokers' answer about the topic. No answer says nothing about it: the
// stages that write to the brokers notice when all of them are unreachable.
func (l *lag) observe(err error, now time.Time) {
	_, answered := errors.AsType[*kerr.Error](err)
	if err != nil && !answered {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.since = now
	}
	if err != nil {
		err = reason.Of(err)
	}
	l.err = err
}

// Failing implements sources.Failing.
func (l *lag) Failing() error { return l.failing(time.Now()) }

func (l *lag) failing(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) < patience {
		return nil
	}
	return l.err
}

// WaitsFor implements sources.Failing.
func (l *lag) WaitsFor() string { return "its topic " + l.topic }
