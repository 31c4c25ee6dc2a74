package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Letters says which open dead letters: those with IDs, or those that Filter
// selects, whose State is ignored.
type Letters struct {
	IDs    []int64
	Filter store.LetterFilter
}

// letterPage is how many letters are listed at a time, without their payloads.
const letterPage = 100

// walkLetters hands ids to f, a page at a time, in ascending order.
func walkLetters(ctx context.Context, s LetterStore, l Letters, f func(ids []int64) error) error {
	if l.IDs != nil {
		for part := range slices.Chunk(l.distinct(), letterPage) {
			if err := f(part); err != nil {
				return err
			}
		}
		return nil
	}
	filter := l.Filter
	limit := filter.Limit
	filter.State = store.LetterOpen
	for {
		filter.Limit = letterPage
		if l.Filter.Limit > 0 {
			if filter.Limit = min(letterPage, limit); filter.Limit == 0 {
				return nil
			}
		}
		letters, err := s.ListLetters(ctx, filter)
		if err != nil || len(letters) == 0 {
			return err
		}
		ids := make([]int64, len(letters))
		for i := range letters {
			ids[i] = letters[i].ID
		}
		limit -= len(ids)
		filter.AfterID = ids[len(ids)-1]
		if err := f(ids); err != nil {
			return err
		}
	}
}

// distinct returns the IDs in ascending order, each once.
func (l *Letters) distinct() []int64 { return slices.Compact(slices.Sorted(slices.Values(l.IDs))) }

// CountLetters returns how many letters a selection has now.
func CountLetters(ctx context.Context, s LetterStore, l Letters) (n int, err error) {
	err = walkLetters(ctx, s, l, func(ids []int64) error { n += len(ids); return nil })
	return n, err
}

// Shown is called with how far an action is; total is 0 when it is unknown. Nil shows nothing.
type Shown func(done, total int64)

// ofLetters returns a function that adds to the letters that are done.
func (s Shown) ofLetters(ctx context.Context, from LetterStore, l Letters) (add func(n int), err error) {
	if s == nil {
		return func(int) {}, nil
	}
	total, err := CountLetters(ctx, from, l)
	done := 0
	return func(n int) { done += n; s(int64(done), int64(total)) }, err
}

// ReplayMode is how a dead letter comes back.
type ReplayMode string

// The ways.
const (
	// AsEvent: the event enters the inbox again. The owner applies it unless its
	// source sent something newer for the entity since.
	AsEvent ReplayMode = "event"
	// AsDecision: the service is decided again from the current merged document.
	AsDecision ReplayMode = "decide"
	// AsChange: the change itself is sent again, late, with its own version and
	// key, because its sink keeps every change.
	AsChange ReplayMode = "resend"
)

// Words says the mode in words.
func (m ReplayMode) Words() string {
	return map[ReplayMode]string{AsEvent: "its event enters again", AsDecision: "decided again from the entity's current state", AsChange: "the change is sent again, late"}[m]
}

// LetterReplay is the result of a replay for one letter.
type LetterReplay struct {
	ID     int64      `json:"id"`
	Entity string     `json:"entity,omitempty"`
	Way    ReplayMode `json:"as,omitempty"`
	// Refused is why the letter was not replayed. It is empty if it was.
	Refused string `json:"refused,omitempty"`
	// State is set by FillSent: replayed or obsolete, or open when it died again since.
	State store.LetterState `json:"state,omitempty"`
	// Sent are the services that got a change from it. Nil means not known yet, empty that no
	// service did. See FillSent.
	Sent []string `json:"sent,omitempty"`

	trace trace
}

// ReplayLetters sends dead letters back to the start of the flow and tells f of
// each. The letters stay open until the owners of their entities decide them:
// replayed, or obsolete when something newer had come in between. A letter that
// cannot be replayed is refused and stays as it is. With dry nothing is sent.
func (e *Env) ReplayLetters(ctx context.Context, l Letters, reason string, dry bool, f func(LetterReplay)) error {
	operation := uuid.NewString()
	add, err := e.Progress.ofLetters(ctx, e.Store, l)
	if err != nil {
		return err
	}
	return walkLetters(ctx, e.Store, l, func(ids []int64) error {
		var batch replayBatch
		for i, id := range ids {
			record, way, err := e.again(ctx, id, operation, reason)
			result := LetterReplay{ID: id, Entity: record.Entity, Way: way, trace: traceIn(record)}
			var no *InvalidRequestError
			switch {
			case errors.As(err, &no):
				result.Refused = no.Reason
			case err != nil:
				return err
			}
			batch.add(result, record)
			if batch.bytes < replayBytes && i < len(ids)-1 {
				continue
			}
			if !dry {
				if err := e.replayBatch(ctx, &batch, operation, reason); err != nil {
					return err
				}
			}
			for _, r := range batch.results {
				f(r)
				add(1)
			}
			batch = replayBatch{}
		}
		return ctx.Err()
	})
}

// replayBytes is about how much of letters is in memory at a time, and appended at once.
const replayBytes = 16 << 20

// replayBatch is how many records are appended at once.
type replayBatch struct {
	results []LetterReplay
	records []change.Record
	of      []int // of each record: its place in results
	bytes   int
}

func (b *replayBatch) add(result LetterReplay, record change.Record) {
	b.results = append(b.results, result)
	if result.Refused != "" {
		return
	}
	b.records, b.of = append(b.records, record), append(b.of, len(b.results)-1)
	if record.Event != nil {
		b.bytes += len(record.Event.Payload)
	} else {
		b.bytes += len(record.Control.Change)
	}
}

// replayBatch appends records of letters. A letter that is too large for the inbox is refused,
// and does not block others.
func (e *Env) replayBatch(ctx context.Context, b *replayBatch, operation, reason string) error {
	if len(b.records) == 0 {
		return nil
	}
	sent := make([]int64, len(b.of))
	for i, n := range b.of {
		sent[i] = b.results[n].ID
	}
	detail, err := json.Marshal(map[string]any{"operation": operation, "letters": sent})
	if err != nil {
		return err
	}
	// Audit first: the action may be interrupted after it took effect.
	if err := e.audit(ctx, store.Audit{Action: "dlq replay", Reason: reason, Detail: detail}); err != nil {
		return err
	}
	crash.At(crash.LettersReplay, "")
	err = e.send(ctx, b.records)
	if tooLarge(err) {
		// Sending each alone finds it. Records that were appended already are decided once
		// more, with the same result.
		for i, record := range b.records {
			if err = e.send(ctx, []change.Record{record}); tooLarge(err) {
				b.results[b.of[i]].Refused, err = fmt.Sprintf("the inbox does not take it: %s", err), nil
			} else if err != nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("append to the inbox: %w", err)
	}
	crash.At(crash.LettersReplayed, "")
	return nil
}

// tooLarge reports whether an append failed for the size of a record alone.
func tooLarge(err error) bool {
	return errors.Is(err, transport.ErrTooLarge) || errors.Is(err, kerr.MessageTooLarge)
}

// openLetter reads an open letter.
func openLetter(ctx context.Context, s LetterStore, id int64) (store.DeadLetter, error) {
	l, err := s.Letter(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return l, Invalid("there is no dead letter %d", id)
	case err != nil:
		return l, err
	case l.State != store.LetterOpen:
		return l, Invalid("it is %s", l.State)
	}
	return l, nil
}

// again makes the record that replays a letter.
func (e *Env) again(ctx context.Context, id int64, operation, reason string) (change.Record, ReplayMode, error) {
	l, err := openLetter(ctx, e.Store, id)
	if err != nil {
		return change.Record{}, "", err
	}
	replay := &change.Replay{Letter: l.ID, Version: l.Version, Died: l.Created.UnixMilli(), Operation: operation, Actor: e.Actor, Reason: reason, Trace: traceOf(l)}
	switch {
	case l.Stage == store.StageIngest:
		shape, err := e.Shape(l.Source)
		if err != nil {
			return change.Record{}, "", err
		}
		record, still := shape.Redelivered(l)
		if still != nil {
			return change.Record{}, AsEvent, Invalid("%s: %s", still.Code, still.Reason)
		}
		record.Event.Replay = replay
		return record, AsEvent, nil
	case l.Service != "":
		return e.againFor(l, operation, reason)
	case l.Stage == store.StageDecide:
		record, err := eventOf(l, replay)
		return record, AsEvent, err
	}
	return change.Record{}, "", Invalid("it belongs to no source and no service: it can only be discarded")
}

// againFor replays a dead letter of one service.
func (e *Env) againFor(l store.DeadLetter, operation, reason string) (change.Record, ReplayMode, error) {
	if _, ok := e.Plan.Service(l.Service); !ok {
		return change.Record{}, "", Invalid("there is no service %s in the active configuration", l.Service)
	}
	if l.Entity == "" {
		return change.Record{}, "", Invalid("this dead letter holds no change and can only be discarded")
	}
	c := change.Control{
		ID: fmt.Sprintf("%s/%d", operation, l.ID), Action: change.Redecide, Services: []string{l.Service}, Version: l.Version,
		Letter: l.ID, Force: l.Code == deliver.CodeServiceRemoved, Operation: operation, Actor: e.Actor, Reason: reason, Trace: traceOf(l),
	}
	if l.Stage != store.StageDeliver || !e.IsLog(l.Service) {
		return change.Record{Entity: l.Entity, Control: &c}, AsDecision, nil
	}
	sent, err := deliver.ChangeOf(l)
	if err != nil {
		return change.Record{}, AsChange, Invalid("%s", err)
	}
	c.Action, c.Version, c.Change = change.Resend, 0, sent.AppendBinary(nil)
	return change.Record{Entity: l.Entity, Control: &c}, AsChange, nil
}

// traceOf returns the context of the work that made a letter, nil unless it was traced.
func traceOf(l store.DeadLetter) *change.Trace {
	if l.Stage == store.StageDeliver {
		var beside deliver.LetterHeaders
		if json.Unmarshal(l.Headers, &beside) != nil {
			return nil
		}
		return beside.Trace
	}
	var headers map[string]string
	if json.Unmarshal(l.Headers, &headers) != nil {
		return nil
	}
	return change.TraceOf(headers)
}

// eventOf makes the event again that could not be decided, with the payload
// that its letter has now.
func eventOf(l store.DeadLetter, replay *change.Replay) (change.Record, error) {
	var headers map[string]string
	if json.Unmarshal(l.Headers, &headers) != nil || headers[change.InboxHeader] == "" || l.Entity == "" {
		return change.Record{}, Invalid("this dead letter holds no event and can only be discarded")
	}
	payload := l.Payload
	if payload == nil {
		payload = []byte{}
	}
	event, err := change.EventOfText(l.Entity, headers[change.InboxHeader], payload)
	if err != nil {
		return change.Record{}, Invalid("this dead letter holds no event and can only be discarded")
	}
	if was := event.Replay; was != nil {
		// It was a letter before: it is as old as it was then.
		replay.Version, replay.Died = was.Version, was.Died
	}
	event.Replay = replay
	if event.Op == change.Delete && len(payload) > 0 {
		event.Op, event.Payload = change.Upsert, payload // an edit made a document of it
	}
	if event.Op == change.Upsert {
		tree, err := canonicaltree.Parse(event.Payload)
		if err != nil {
			return change.Record{}, Invalid("bad_json: %s", err)
		}
		tree.Release()
	}
	return change.Record{Entity: l.Entity, Event: event}, nil
}

// DiscardLetters discards open letters. It returns how many, and how many of the named ones were
// not open. Each page of them has an audit row with their ids.
func DiscardLetters(ctx context.Context, s LetterStore, l Letters, actor, reason string, shown Shown) (n, missing int, err error) {
	operation := uuid.NewString()
	add, err := shown.ofLetters(ctx, s, l)
	if err != nil {
		return 0, 0, err
	}
	err = walkLetters(ctx, s, l, func(ids []int64) error {
		detail, err := json.Marshal(map[string]any{"operation": operation, "letters": ids})
		if err != nil {
			return err
		}
		moved, err := s.MoveLetters(ctx, ids, store.LetterOpen, store.LetterDiscarded,
			store.Audit{Actor: actor, Action: "dlq discard", Reason: reason, Detail: detail})
		n += moved
		add(moved)
		return err
	})
	if err == nil && l.IDs != nil {
		missing = len(l.distinct()) - n
	}
	return n, missing, err
}

// Editable returns an open letter whose payload may be replaced: only events can be edited. A
// change follows from the state and the configuration, and an edited document would contradict
// both.
func Editable(ctx context.Context, s LetterStore, id int64) (store.DeadLetter, error) {
	l, err := openLetter(ctx, s, id)
	if err == nil && l.Service != "" {
		err = Invalid("it is a change for %s, which follows from events: correct the source or the projection, then replay it", l.Service)
	}
	return l, err
}

// EditLetter replaces the payload of a letter that Editable returned. The first one is kept. A
// letter that changed since it was read stays as it is. The payload has at most limit bytes, the
// largest event of the letter's source. 0 means that the source no longer exists.
func EditLetter(ctx context.Context, s LetterStore, seen store.DeadLetter, payload []byte, limit int, actor, reason string) error {
	if limit <= 0 {
		return Invalid("the configuration has no source that it could come back to: discard it")
	}
	if len(payload) > limit {
		return Invalid("the new payload is larger than %d bytes, the most that an event of its source may have (max_event)", limit)
	}
	detail, err := json.Marshal(map[string]any{"letters": []int64{seen.ID}, "bytes": len(payload)})
	if err != nil {
		return err
	}
	err = s.EditDeadLetter(ctx, seen.ID, seen.Payload, payload, store.Audit{Actor: actor, Action: "dlq edit", Reason: reason, Detail: detail})
	if errors.Is(err, store.ErrNotFound) {
		return Invalid("dead letter %d was changed or closed by another process: read it again", seen.ID)
	}
	return err
}
