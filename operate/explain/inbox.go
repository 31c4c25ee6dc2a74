package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"golang.org/x/sync/errgroup"
)

// inboxTime bounds reading the inbox: the rest of the report does not need it.
const inboxTime = 15 * time.Second

// events lists the history, with the records that are still in the inbox.
func (s *report) events(ctx context.Context) {
	for i, t := range s.inspection.History.Entries {
		e := Event{entry: i, Version: t.Version.String(), Time: t.Time, Source: t.Source, EventID: t.EventID, Outcome: t.Outcome, InRow: t.InRow, version: uint64(t.Version)}
		if t.Outcome == "control" {
			e.Source, e.Action = "", t.Source
		}
		s.Events = append(s.Events, e)
	}
	if s.in.Log == nil {
		if s.in.NoInbox != "" {
			s.Notes = append(s.Notes, "the inbox was not read: "+s.in.NoInbox)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inboxTime)
	defer cancel()
	if err := s.readBack(ctx); err != nil {
		s.Notes = append(s.Notes, "the inbox cannot be read: "+err.Error())
	}
}

func (s *report) readBack(ctx context.Context) error {
	partition := transport.PartitionOf([]byte(s.Entity), s.in.Inbox.Partitions)
	s.Explanation.Partition = &partition
	starts, ends, err := s.in.Log.Offsets(ctx, s.in.Inbox.Topic)
	if err != nil {
		return err
	}
	start, end := starts[partition], ends[partition]
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := range s.Events {
		e := &s.Events[i]
		v := change.Version(e.version)
		switch {
		case v.Generation() != s.in.Inbox.Generation:
			e.Gone = fmt.Sprintf("it was in an earlier inbox (generation %d)", v.Generation())
		case v.Offset() < start:
			e.Gone = fmt.Sprintf("retention removed it (the inbox begins at offset %d)", start)
		case v.Offset() >= end:
			e.Gone = fmt.Sprintf("the inbox ends at offset %d", end)
		default:
			g.Go(func() error {
				r, err := s.record(ctx, partition, v.Offset())
				if err != nil {
					return err
				}
				s.fill(e, r)
				return nil
			})
		}
	}
	return g.Wait()
}

// record returns the record at an offset, or nil without one.
func (s *report) record(ctx context.Context, partition int32, offset int64) (*change.Record, error) {
	var found *change.Record
	at := func(o int64) map[int32]int64 { return map[int32]int64{partition: o} }
	err := s.in.Log.Scan(ctx, s.in.Inbox.Topic, at(offset), at(offset+1), func(r transport.Scanned) error {
		if r.Offset != offset {
			return nil
		}
		rec, err := change.DecodeRecord(slices.Clone(r.Key), r.HeaderBytes(change.InboxHeader), slices.Clone(r.Value))
		found = &rec
		return err
	})
	return found, err
}

// fill adds the inbox record of an event.
func (s *report) fill(e *Event, r *change.Record) {
	switch {
	case r == nil:
		e.Gone = "the inbox has no record there any more"
	case r.Entity != s.Entity:
		e.Gone = fmt.Sprintf("another entity's record is there (%q)", r.Entity)
	case r.Control != nil:
		c := r.Control
		e.EventID = c.ID
		e.Record = &Record{Actor: c.Actor, Reason: c.Reason, Services: c.Services}
	default:
		v := r.Event
		e.EventID = v.EventID // whole
		e.Record = &Record{
			Operation: string(v.Op), Stream: v.Topic, Partition: v.Partition, Offset: v.Offset, Sequence: v.Sequence, Size: len(v.Payload),
			Position: positionText(s.in.Config.Sources.Find(v.Source), v.Partition, v.Offset),
		}
		if s.in.Payload {
			e.Record.Payload = v.Payload
		}
	}
}

// positioned is a kind of source whose positions have a form of their own.
type positioned interface {
	// PositionText returns a position as its server writes it.
	PositionText(partition int32, offset int64) string
}

// positionText returns a position as its source names it. The source is nil if the configuration
// has it no more.
func positionText(c *config.Source, partition int32, offset int64) string {
	if c != nil {
		if p, ok := c.Input.(positioned); ok {
			return p.PositionText(partition, offset)
		}
	}
	return fmt.Sprintf("%d/%d", partition, offset)
}
