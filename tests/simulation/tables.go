package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources/postgres"
	"github.com/seed-86dfc502/weir/store"
)

// readTables reads the database with the product's reader, into a stage.
func (p *process) readTables(stage *ingest.Stage, d *dice) {
	const table = "public.stock"
	reader := postgres.NewReader(postgres.Options{
		Setup:    postgres.Setup{Source: shop, URL: "postgres://weir@127.0.0.1/shop?sslmode=disable", Slot: "weir", Publication: "weir", Tables: []string{table}},
		Entities: map[string][]string{table: {"id"}}, Positions: p.client("positions"), Logs: p.client("positions"), Stored: p.stored, Decided: p.decided, Barrier: p.barrier,
		FrameRecords: p.w.setup.frame, Readers: 1, Piece: 1, StopGrace: grace, Limit: p.ctx, Dial: p.dial, Logger: p.w.log,
	}, map[string]string{table: shop})
	source := reader.Source(table)
	messages, err := source.Subscribe(p.ctx, source.Topic())
	if err != nil {
		panic(err) // it was not closed
	}
	done := make(chan struct{})
	p.w.spawn(func() {
		defer close(done)
		for m := range messages {
			if p.w.rules.MarkFirst {
				m.Ack()
			}
			if err := stage.Handle(m); err != nil || p.w.fault(d, "acknowledgement lost", 0.5) {
				m.Nack()
			} else {
				m.Ack()
			}
		}
	})
	p.stops = append(p.stops, func() {
		_ = source.Close()
		<-done
	})
}

// stored is postgres.Options.Stored.
func (p *process) stored(ctx context.Context, source, after string) (ids []string, err error) {
	if err := p.reach(ctx, time.Millisecond); err != nil || p.w.rules.ForgetsStored {
		return nil, err
	}
	err = p.w.mem.look(ctx, func(s *state) {
		for _, id := range slices.Sorted(maps.Keys(s.entities)) {
			if id > after && s.document(id, source) != "" {
				ids = append(ids, id)
			}
		}
	})
	return ids[:min(len(ids), 2)], err
}

// decided is postgres.Options.Decided: it waits until all that the inbox has is decided.
func (p *process) decided(ctx context.Context) error {
	for part := range p.w.inbox.parts {
		for end := p.w.inbox.end(part); p.w.decidedTo()[int32(part)] < end; {
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// barrier is postgres.Options.Barrier.
func (p *process) barrier(ctx context.Context, s change.Session, sequence string, _ func(error)) error {
	if err := p.reach(ctx, time.Millisecond); err != nil {
		return err
	}
	key, head, value, err := change.EncodeRecord(change.Record{Control: &change.Control{ID: s.Header(), Action: change.Barrier, Session: s, Sequence: sequence}})
	if err != nil {
		return err
	}
	var records []transport.Record
	for part := range p.w.inbox.parts {
		records = append(records, transport.Record{Topic: inboxTopic, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Pinned: true, Partition: int32(part)})
	}
	if err := p.writer.Append(ctx, records); err != nil {
		return err
	}
	return p.decided(ctx)
}

// document is an entity's document of a source; empty without one.
func (s *state) document(id, source string) string {
	var docs map[string]map[string]any
	d := json.NewDecoder(bytes.NewReader(s.entities[id].Docs))
	d.UseNumber()
	if d.Decode(&docs) != nil || docs[source] == nil {
		return ""
	}
	doc, err := json.Marshal(docs[source])
	if err != nil {
		panic(err) // it was decoded
	}
	return string(doc)
}

// Position implements store.SourcePositions.
func (m *Memory) Position(ctx context.Context, source, identity string) (p store.SourcePosition, err error) {
	err = m.run(ctx, func() error {
		var known bool
		if p, known = m.state.positions[source+" "+identity]; !known {
			return store.ErrNotFound
		}
		return nil
	})
	return p, err
}

// SetPosition implements store.SourcePositions.
func (m *Memory) SetPosition(ctx context.Context, p store.SourcePosition) error {
	return m.run(ctx, func() error { m.state.setPosition(p); return nil })
}

func (s *state) setPosition(p store.SourcePosition) {
	if key := p.Source + " " + p.Identity; p.Offset >= s.positions[key].Offset {
		s.positions[key] = p
	}
}

type floorKey struct {
	store.Partition
	log string
}

// SourceLog implements store.SourceLogs.
func (m *Memory) SourceLog(ctx context.Context, log string) (l store.SourceLog, err error) {
	err = m.run(ctx, func() error {
		var known bool
		if l, known = m.state.logs[log]; !known {
			return store.ErrNotFound
		}
		return nil
	})
	return l, err
}

// SwapSourceLog implements store.SourceLogs.
func (m *Memory) SwapSourceLog(ctx context.Context, old, next store.SourceLog, positions ...store.SourcePosition) (version int64, err error) {
	err = m.run(ctx, func() error {
		s := &m.state
		if row := s.logs[next.Log]; !m.rules.NoSwap && (row.Version != old.Version || old.Version > 0 && row.Session != old.Session) {
			return store.ErrFenced
		}
		next.Version = old.Version + 1
		s.logs[next.Log] = next
		for _, p := range positions {
			s.setPosition(p)
		}
		return nil
	})
	return old.Version + 1, err
}

// Floors implements store.SourceLogs.
func (m *Memory) Floors(ctx context.Context, log string) (floors []store.Floor, err error) {
	err = m.run(ctx, func() error {
		for _, f := range m.state.floors {
			if log == "" || f.Log == log {
				floors = append(floors, f)
			}
		}
		return nil
	})
	return floors, err
}

func (c *client) Position(ctx context.Context, source, identity string) (store.SourcePosition, error) {
	return read(ctx, c, "position", 0, func() (store.SourcePosition, error) { return c.Memory.Position(ctx, source, identity) })
}

func (c *client) SourceLog(ctx context.Context, log string) (store.SourceLog, error) {
	return read(ctx, c, "source log", 0, func() (store.SourceLog, error) { return c.Memory.SourceLog(ctx, log) })
}

func (c *client) Floors(ctx context.Context, log string) ([]store.Floor, error) {
	return read(ctx, c, "floors", 0, func() ([]store.Floor, error) { return c.Memory.Floors(ctx, log) })
}

func (c *client) SwapSourceLog(ctx context.Context, old, next store.SourceLog, positions ...store.SourcePosition) (version int64, err error) {
	err = c.call(ctx, c.diceOf("swap source log", 0), "swap source log", store.Unknown, func() (err error) {
		version, err = c.Memory.SwapSourceLog(ctx, old, next, positions...)
		return err
	})
	return version, err
}

func (c *client) SetPosition(ctx context.Context, p store.SourcePosition) error {
	return c.call(ctx, c.diceOf("set position", 0), "set position", store.Unknown, func() error { return c.Memory.SetPosition(ctx, p) })
}
