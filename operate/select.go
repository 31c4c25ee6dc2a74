package operate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// Selection says which entities an action is for: exactly one of its fields is
// set, except Until, which goes with Since.
type Selection struct {
	// All stored entities.
	All bool
	// Outdated are the stored entities that were last evaluated under another
	// configuration than the active one.
	Outdated bool
	// List holds ids, one per line. It is read more than once.
	List io.ReadSeeker
	// Since and Until select the entities of the events that were appended to the inbox from
	// Since to before Until. Without Until it is up to now. The inbox reaches back as far as its
	// retention.
	Since, Until time.Time
}

// batch is one step of a selection: the entities of one append and where the
// selection continues after them.
type batch struct {
	ids    []string
	stored map[string]store.Entity // those that were read anyway
	cursor []byte
	seen   int64 // units behind the cursor since the last portion
}

// maxLine bounds one line of a list, in bytes.
const maxLine = 64 << 10

// ErrBadList is the error of a list that holds something else than ids.
var ErrBadList = errors.New("the list of entities is not usable")

// walk hands the selected entities to f, in portions of at most size, from
// a cursor on, which is nil for the start. It ends with the first error of f.
func (w *work) walk(ctx context.Context, cursor []byte, size int, f func(batch) error) error {
	switch s := w.task.Select; {
	case s.List != nil:
		return walkList(ctx, s.List, cursor, size, f)
	case !s.Since.IsZero():
		return w.walkInbox(ctx, cursor, size, f)
	}
	return w.walkStore(ctx, string(cursor), size, f)
}

const page = 500

func (w *work) walkStore(ctx context.Context, after string, size int, f func(batch) error) error {
	for {
		entities, err := w.Store.Entities(ctx, after, page)
		if err != nil {
			return err
		}
		if len(entities) == 0 {
			return nil
		}
		p := batch{stored: map[string]store.Entity{}}
		for i, entity := range entities {
			p.seen++
			p.cursor = []byte(entity.ID)
			if !w.task.Select.Outdated || !w.Plan.Current(entity) {
				p.ids = append(p.ids, entity.ID)
				p.stored[entity.ID] = entity
			}
			if len(p.ids) == size || i == len(entities)-1 {
				if err := f(p); err != nil {
					return err
				}
				p = batch{stored: map[string]store.Entity{}}
			}
		}
		after = entities[len(entities)-1].ID
	}
}

// lines hands out the ids of a list, without empty lines, with their numbers from 1.
func lines(list io.ReadSeeker, f func(number int64, id string) error) error {
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s := bufio.NewScanner(list)
	s.Buffer(make([]byte, 0, 4096), maxLine)
	number := int64(0)
	for s.Scan() {
		number++
		line := bytes.TrimSuffix(s.Bytes(), []byte("\r"))
		if len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			return fmt.Errorf("%w: line %d is no valid UTF-8 or holds a NUL", ErrBadList, number)
		}
		if err := f(number, string(line)); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%w: line %d is longer than %d bytes", ErrBadList, number+1, maxLine)
	}
	return s.Err()
}

func walkList(ctx context.Context, list io.ReadSeeker, cursor []byte, size int, f func(batch) error) error {
	var done int64
	if cursor != nil {
		if err := json.Unmarshal(cursor, &done); err != nil {
			return fmt.Errorf("cursor: %w", err)
		}
	}
	var p batch
	flush := func() error {
		if len(p.ids) == 0 {
			return ctx.Err()
		}
		out := p
		p = batch{}
		return f(out)
	}
	err := lines(list, func(number int64, id string) error {
		if number <= done {
			return nil
		}
		p.ids, p.cursor, p.seen = append(p.ids, id), fmt.Append(nil, number), p.seen+1
		if len(p.ids) < size {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// offsetRange is the cursor of a selection by time: offsets per inbox partition.
type offsetRange struct {
	Generation uint16          `json:"generation"`
	Next       map[int32]int64 `json:"next"`
	End        map[int32]int64 `json:"end"`
}

// recent bounds how many ids a selection by time remembers to avoid repetitions. A repetition
// does no harm.
const recent = 100_000

func (w *work) walkInbox(ctx context.Context, cursor []byte, size int, f func(batch) error) error {
	at := offsetRange{Generation: w.Inbox.Generation}
	if cursor != nil {
		if err := json.Unmarshal(cursor, &at); err != nil {
			return fmt.Errorf("cursor: %w", err)
		}
		if at.Generation != w.Inbox.Generation {
			return Invalid("the inbox was replaced since this began: its offsets mean nothing any more")
		}
	} else if err := w.locate(ctx, &at); err != nil {
		return err
	}
	known := make(map[string]bool)
	var p batch
	flush := func() error {
		out := p
		p = batch{}
		var err error
		if out.cursor, err = json.Marshal(at); err != nil {
			return err
		}
		return f(out)
	}
	if cursor == nil {
		// The end is fixed before anything is appended, so that the action does not read its own
		// records.
		if err := flush(); err != nil {
			return err
		}
	}
	err := w.Log.Scan(ctx, w.Inbox.Topic, at.Next, at.End, func(r transport.Scanned) error {
		if r.Offset < at.Next[r.Partition] {
			return nil
		}
		at.Next[r.Partition] = r.Offset + 1
		p.seen++
		if id := string(r.Key); isEvent(r) && !known[id] {
			if len(known) >= recent {
				clear(known)
			}
			known[id] = true
			p.ids = append(p.ids, id)
		}
		if len(p.ids) < size && p.seen < 20*page {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// locate finds the offsets of the selected time range.
func (w *work) locate(ctx context.Context, at *offsetRange) error {
	s := w.task.Select
	_, ends, err := w.Log.Offsets(ctx, w.Inbox.Topic)
	if err != nil {
		return err
	}
	if at.Next, err = w.Log.OffsetsAt(ctx, w.Inbox.Topic, s.Since); err != nil {
		return err
	}
	at.End = ends
	if !s.Until.IsZero() {
		until, err := w.Log.OffsetsAt(ctx, w.Inbox.Topic, s.Until)
		if err != nil {
			return err
		}
		for n := range at.End {
			at.End[n] = min(at.End[n], until[n])
		}
	}
	return nil
}

// isEvent tells events from control records.
func isEvent(r transport.Scanned) bool {
	rec, err := change.DecodeRecord(r.Key, r.HeaderBytes(change.InboxHeader), r.Value)
	return err == nil && rec.Event != nil
}
