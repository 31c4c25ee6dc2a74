package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// openLogs opens the inbox and the changes log; the store is open.
func (p *process) openLogs() (err error) {
	if p.logs, err = assemble.OpenLogs(p.cfg, p.store, p.log); err != nil {
		return err
	}
	p.closers = append(p.closers, func() error { // its callers have ended
		ctx, cancel := context.WithTimeout(p.end.closing(), p.closeTimeout())
		defer cancel()
		if err := p.logs.Close(ctx); err != nil {
			// Records that Kafka did not acknowledge were not acknowledged to their origin
			// either, and are redelivered.
			p.log.Warn("Kafka did not answer during the shutdown: some records are redelivered", "event", "shutdown.logs", "error", err)
		}
		return nil
	})
	if p.cfg.Kafka.Embedded() {
		// The file is this process's now: the address of an earlier one is stale.
		return control.RemoveStale(p.cfg)
	}
	return nil
}

// keepChanges lets decisions write their frames into the changes log, where that is
// in the file that they write to. It is there.
func (p *process) keepChanges(ctx context.Context) error {
	if l, ok := p.logs.(assemble.FileLogs); ok {
		return l.KeepChanges(ctx, p.cfg.Kafka.Changes.Topic)
	}
	return nil
}

// trimEvery is how often an embedded process looks for records that are over their
// time.
const trimEvery = time.Minute

// trim deletes what is over its time from logs in the file, until ctx ends. What is
// not decided stays in the inbox.
func (g *inboxManager) trim(ctx context.Context) {
	l, ok := g.logs.(assemble.FileLogs)
	if !ok {
		return
	}
	for wait.Sleep(ctx, trimEvery) {
		if err := g.trimLogs(ctx, l, time.Now()); err != nil && ctx.Err() == nil {
			g.log.Warn("records that are over their time stay until the next time", "error", err)
		}
	}
}

func (g *inboxManager) trimLogs(ctx context.Context, l assemble.FileLogs, now time.Time) error {
	k := g.Config().Kafka
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
	err = l.Trim(ctx, k.Inbox.Topic, now.Add(-k.Inbox.Retention.D()), decided)
	return errors.Join(err, l.Trim(ctx, k.Changes.Topic, now.Add(-k.Changes.Retention.D()), nil))
}
