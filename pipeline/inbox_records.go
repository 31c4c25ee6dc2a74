package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// lag returns the undecided records by partition, without unavailable partitions.
func (g *inboxManager) lag(ctx context.Context) (lags map[int32]int64, unavailable []int32, err error) {
	starts, ends, err := g.logs.AvailableOffsets(ctx, g.cfg.Kafka.Inbox.Topic)
	if err != nil {
		return nil, nil, err
	}
	marks, err := g.store.Watermarks(ctx)
	if err != nil {
		return nil, nil, err
	}
	inboxes, err := g.store.Inboxes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if n := len(inboxes); n > 0 {
		g.stored.Store(&inboxes[n-1])
	}
	lags = make(map[int32]int64, len(ends))
	for n, end := range ends {
		// What retention removed no longer waits.
		next := max(starts[n], marks[store.Partition{Generation: g.now().Generation, Number: n}])
		lags[n] = max(0, end-next)
	}
	for n := range int32(g.cfg.Kafka.Inbox.Partitions) {
		if _, known := lags[n]; !known {
			unavailable = append(unavailable, n)
		}
	}
	return lags, unavailable, nil
}

// entitiesOf is sources.Env.Stored.
func (g *inboxManager) entitiesOf(ctx context.Context, source, after string) (ids []string, err error) {
	const page = 500
	for {
		entities, err := g.store.Entities(ctx, after, page)
		if err != nil || len(entities) == 0 {
			return nil, err
		}
		for i := range entities {
			var docs map[string]json.RawMessage
			if err := json.Unmarshal(entities[i].Docs, &docs); err != nil {
				return nil, err
			}
			if after = entities[i].ID; docs[source] != nil {
				ids = append(ids, after)
			}
		}
		if len(ids) > 0 {
			return ids, nil
		}
	}
}

// barrierPatience is how long a partition may take until the session says that it waits.
const barrierPatience = 10 * time.Second

// barrier is sources.Env.Barrier.
func (g *inboxManager) barrier(ctx context.Context, s change.Session, sequence string, waits func(error)) error {
	topic := g.cfg.Kafka.Inbox.Topic
	records, err := operate.InboxRecords(topic, []change.Record{{Control: &change.Control{ID: s.Header(), Action: change.Barrier, Session: s, Sequence: sequence}}})
	if err != nil {
		return err
	}
	appends, within := errgroup.WithContext(ctx)
	for n := range int32(g.cfg.Kafka.Inbox.Partitions) {
		appends.Go(func() error {
			late := time.AfterFunc(barrierPatience, func() { waits(fmt.Errorf("partition %d of %s takes nothing: no table of the slot is read", n, topic)) })
			defer late.Stop()
			r := records[0]
			r.Pinned, r.Partition = true, n
			return g.logs.Append(within, []transport.Record{r})
		})
	}
	if err := appends.Wait(); err != nil {
		return err
	}
	return g.decided(ctx, waits)
}

// allDecided is sources.Env.Decided.
func (g *inboxManager) allDecided(ctx context.Context) error { return g.decided(ctx, nil) }

// decided waits until all records that the inbox has now are decided. It calls waits, if given, with a partition that
// takes long.
func (g *inboxManager) decided(ctx context.Context, waits func(error)) error {
	began := time.Now()
	generation := g.now().Generation
	starts, ends, err := g.logs.Offsets(ctx, g.cfg.Kafka.Inbox.Topic)
	if err != nil {
		return err
	}
	for {
		marks, err := g.store.Watermarks(ctx)
		if err != nil {
			return err
		}
		behind, slowest := false, int32(0)
		for n, end := range ends {
			if max(starts[n], marks[store.Partition{Generation: generation, Number: n}]) < end {
				behind, slowest = true, n
			}
		}
		if behind && waits != nil && time.Since(began) > barrierPatience {
			began = time.Now()
			waits(fmt.Errorf("partition %d of %s has events that are not decided: is a process with the role work running? No table of the slot is read before", slowest, g.cfg.Kafka.Inbox.Topic))
		}
		switch {
		case g.now().Generation != generation:
			return errors.New("the inbox was replaced")
		case !behind:
			return nil
		case !wait.Sleep(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}

// trimEvery is how often an embedded process deletes expired records.
const trimEvery = time.Minute

// trim deletes expired records from logs in the file, until ctx ends. Undecided records
// remain in the inbox.
func (g *inboxManager) trim(ctx context.Context) {
	l, ok := g.logs.(assemble.FileLogs)
	if !ok {
		return
	}
	for wait.Sleep(ctx, trimEvery) {
		if err := g.trimLogs(ctx, l, time.Now()); err != nil && ctx.Err() == nil {
			g.log.Warn("expired records remain until the next time", "event", "logs.not_trimmed", "error", err)
		}
	}
}

func (g *inboxManager) trimLogs(ctx context.Context, l assemble.FileLogs, now time.Time) error {
	k := g.active.config().Kafka
	marks, err := g.store.Watermarks(ctx)
	if err != nil {
		return err
	}
	decided := make(map[int32]int64, k.Inbox.Partitions)
	for part, next := range marks {
		if part.Generation == g.now().Generation {
			decided[part.Number] = next
		}
	}
	return l.Trim(ctx, k.Inbox.Topic, now.Add(-k.Inbox.Retention.D()), decided)
}
