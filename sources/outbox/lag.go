package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/sources"
)

// mostRows bounds the rows that Backlog counts: more would cost as much as reading them.
const mostRows = 10_000

// sighting is a row, and when it was first seen.
type sighting struct {
	id    string
	since time.Time
}

// waits are the rows whose waiting tells the lag. The table need not say when a
// row was written.
type waits struct {
	mu sync.Mutex
	// oldest is the oldest row of the last check. While it remains, reading makes no progress.
	oldest sighting
	// probe is the newest row of an earlier check. While it waits, not all rows of that time have
	// been read.
	probe sighting
}

// Backlog implements sources.Queue. It looks at the table on a connection of its own:
// reading may be held up. It counts up to mostRows+1 rows, and the oldest has waited
// as long as this process has seen it, at least. Before the table was described for
// the first time it is zero.
func (s *Source) Backlog(ctx context.Context) (sources.Backlog, error) {
	t := s.described.Load()
	if t == nil {
		return sources.Backlog{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	var probe *string
	if s.waits.probe.id != "" {
		probe = &s.waits.probe.id
	}
	var b sources.Backlog
	var oldest, newest *string
	var probeWaits bool
	if err := s.pool.QueryRow(ctx, t.lag, mostRows+1, probe).Scan(&b.Rows, &oldest, &newest, &probeWaits); err != nil {
		return sources.Backlog{}, classify(err)
	}
	b.Oldest = s.waits.seen(text(oldest), text(newest), probeWaits, time.Now())
	return b, nil
}

// seen notes a look and returns how long the oldest row has waited at least.
func (w *waits) seen(oldest, newest string, probeWaits bool, now time.Time) time.Duration {
	if oldest == "" {
		w.oldest, w.probe = sighting{}, sighting{}
		return 0
	}
	if oldest != w.oldest.id {
		w.oldest = sighting{oldest, now}
	}
	if !probeWaits {
		w.probe = sighting{newest, now}
	}
	return max(now.Sub(w.oldest.since), now.Sub(w.probe.since))
}
