package deliver

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// codeGaveUp is the code of letters whose last allowed attempt failed; the target
// said nothing against them.
const codeGaveUp = "gave_up"

// LetterHeaders are the parts of a change that its record lacks, in a letter's headers, as
// JSON: both together restore the change.
type LetterHeaders struct {
	Time     int64          `json:"time"` // Unix, in milliseconds
	Revision int64          `json:"revision"`
	Content  change.Content `json:"content"`
	Effect   change.Effect  `json:"effect,omitempty"`
	Planned  bool           `json:"planned,omitempty"`
	Mends    bool           `json:"mends,omitempty"`
	At       int64          `json:"at,omitempty"`    // as Time
	Trace    *change.Trace  `json:"trace,omitempty"` // of the attempt that failed, if it was traced
}

// ChangeOf restores the change that became a dead letter, and verifies it by its key. Its error
// says why that is not possible.
func ChangeOf(l store.DeadLetter) (change.Change, error) {
	var record struct {
		Service string
		Entity  string
		Op      change.Op
		Version change.Version
		Key     string
		Doc     json.RawMessage
	}
	var beside LetterHeaders
	if json.Unmarshal(l.Payload, &record) != nil || json.Unmarshal(l.Headers, &beside) != nil {
		return change.Change{}, errors.New("its payload is no change of this build")
	}
	c := change.Change{
		Service: record.Service, Entity: record.Entity, Op: record.Op, Version: record.Version, Key: record.Key, Doc: record.Doc,
		Content: beside.Content, Revision: beside.Revision, Time: time.UnixMilli(beside.Time).UTC(),
		Effect: beside.Effect, Planned: beside.Planned, Mends: beside.Mends,
	}
	if beside.At != 0 {
		c.At = time.UnixMilli(beside.At).UTC()
	}
	if c.Service != l.Service || c.Entity != l.Entity || c.Key != change.Key(c.Service, c.Entity, c.Version, c.Content) ||
		(c.Op == change.Upsert) != (len(c.Doc) > 0) || c.Content.IsRetracted() != (c.Op == change.Retract) {
		return change.Change{}, errors.New("its payload was edited")
	}
	return c, nil
}

// unreadable makes a dead letter of what cannot be read.
func unreadable(part int32, at change.Version, key string, err error) store.DeadLetter {
	return store.DeadLetter{
		Stage: store.StageDeliver, Code: "malformed", Reason: err.Error(), State: store.LetterOpen, Part: part, Version: at, DedupKey: "deliver/" + key,
	}
}

// codeRetrying is the code of rows that are tried again.
const codeRetrying = "retrying"

// restored returns the rows of a partition that was taken over.
func restored(p *core.Partition, rows []store.DeadLetter) []*core.Item {
	items := make([]*core.Item, len(rows))
	for n := range rows {
		l := &rows[n]
		items[n] = &core.Item{
			Partition: l.Part, Position: l.Position, Version: l.Version, Entity: l.Entity, Bytes: l.Size, Assignment: p,
			Attempts: l.Attempts, Next: l.NextTry, Since: l.Created, Reason: l.Reason,
		}
	}
	return items
}

// CodeServiceRemoved is the code of letters whose service was removed from the
// configuration while they were retried: their content is not refused.
const CodeServiceRemoved = "service_removed"

// abandon makes an ordinary letter of a retrying change of a service that is not
// configured. It is due at once: a service that returns gets it. Only a
// process of the active revision can save that. Part of step.
func abandon(p *core.Partition, l store.DeadLetter, key string) {
	l.State, l.Code, l.Later, l.NextTry = store.LetterOpen, CodeServiceRemoved, time.Microsecond, time.Time{}
	l.Reason = "its service was removed from the configuration; last failure: " + l.Reason
	l.DedupKey = "removed/" + key
	p.Edit(key, core.RowEdit{Letter: &l, Parked: true})
}

// deadLetters makes the rows and dead letters of a service.
type deadLetters struct {
	*calls
	s       *shared
	service *Service
	kind    sinks.Kind
	m       *serviceMetrics
}

func (l *deadLetters) key(i *core.Item) string {
	return store.RetryingKey(l.service.Name, i.Partition, i.Position)
}

// putRow writes the row of a parked change; v is nil or was loaded if the store has its
// bytes. Part of step.
func (l *deadLetters) putRow(p *core.Partition, i *core.Item, v *delivery) {
	var c *change.Change
	if v != nil && v.slice != nil {
		c = &v.change
		v.done = true
		if v.span != nil {
			v.span.Set(tracing.OutcomeKey.String(OutcomeParked))
		}
		v.end(nil)
		l.m.count(OutcomeParked)
		l.log.Warn("change parked; its entity is held up", "event", "delivery.parked", "entity", i.Entity,
			"attempts", i.Attempts, "next_try", i.Next, "error", shortened(i.Reason, maxCondition))
	}
	i.Data = nil
	letter, err := l.letterOf(i, c)
	if err != nil {
		panic(err) // no such header
	}
	letter.State, letter.Code, letter.DedupKey = store.LetterRetrying, codeRetrying, l.key(i)
	p.Edit(letter.DedupKey, core.RowEdit{Put: &letter})
}

// load reads the changes of parked items. One whose row is not as it was written stays
// without.
func (l *deadLetters) load(work, stop context.Context, items []*core.Item) error {
	byKey := map[string]*core.Item{}
	for _, i := range items {
		if i.Data == nil {
			byKey[l.key(i)] = i
		}
	}
	if len(byKey) == 0 {
		return nil
	}
	var rows []store.DeadLetter
	if err := l.retryUntil(work, stop, "read retrying changes", func() (err error) {
		rows, err = l.opt.Store.Retrying(work, slices.Sorted(maps.Keys(byKey)))
		return err
	}); err != nil {
		return err
	}
	l.s.mu.Lock()
	for key, i := range byKey { // those that are not saved yet
		if put := i.Assignment.Row(key); put != nil && put.Payload != nil {
			rows = append(rows, *put)
		}
	}
	l.s.mu.Unlock()
	for n := range rows {
		i := byKey[rows[n].DedupKey]
		c, err := ChangeOf(rows[n])
		if err != nil {
			l.log.Error("retrying change cannot be read; it ends", "event", "delivery.unreadable", "entity", i.Entity, "error", err)
			continue
		}
		if c.Partition = i.Partition; i.Position != i.Version {
			c.Resent = i.Position
		}
		v := &delivery{change: c}
		v.trace(l.opt.Tracer, l.service.Name)
		i.Data = v
	}
	return nil
}

// outdated reports whether v was decided under an older configuration than this
// process's. What an operator sent again as it was is not meant to change.
func (l *deadLetters) outdated(v *delivery) bool {
	return v.change.Resent == 0 && v.change.Revision < l.s.revision.Load()
}

// replaceable reports whether v need not be delivered once it is decided again: a log
// sink gets every change, so there only the newest is replaceable.
func (l *deadLetters) replaceable(work, stop context.Context, v *delivery) (bool, error) {
	if !l.outdated(v) || l.kind == sinks.State {
		return l.outdated(v), nil
	}
	rows, err := l.rows(work, stop, l.service.Number, []string{v.change.Entity})
	return rows[v.change.Entity].Version <= v.change.Version, err
}

// redecide requests a new decision of v under the present configuration: the one that
// made it wrote for another table, so the refusal says nothing about the present content.
// If no newer change was decided, the present content passes; a newer one is delivered or
// refused itself. A crash repeats the record, without effect: the row has moved on.
func (l *deadLetters) redecide(work, stop context.Context, i *core.Item, v *delivery) error {
	c := &v.change
	request := change.Control{
		ID: uuid.NewString(), Action: change.Redecide, Services: []string{c.Service}, Version: c.Version, Force: true, Actor: change.Deliver,
		Reason: fmt.Sprintf("refused under revision %d, decided under %d: %s", l.s.revision.Load(), c.Revision, i.Reason), Trace: c.Trace,
	}
	return l.request(work, stop, "request a new decision", change.Record{Entity: c.Entity, Control: &request})
}

// deadLetter prepares the dead letter of v. The refusal of its row is appended to the
// inbox before the dead letter is stored: a crash in between repeats both, which then
// have no effect.
func (l *deadLetters) deadLetter(work, stop context.Context, i *core.Item, v *delivery) error {
	c := &v.change
	crash.At(crash.Refusing, l.service.Name)
	if err := l.refuse(work, stop, "dead letter "+c.Key, []*core.Item{i}); err != nil {
		return err
	}
	crash.At(crash.Refused, l.service.Name)
	letter, err := l.letterOf(i, c)
	if err != nil {
		return err
	}
	letter.State, letter.Code = store.LetterOpen, "refused"
	if i.State() == core.GivenUp {
		letter.Code, letter.Later = codeGaveUp, l.service.Retry.Later
	}
	// A refused content has one letter, however often it is offered. A log sink is owed
	// each change.
	letter.DedupKey = "deliver/" + c.Service + "/" + hex.EncodeToString(c.Content) + "/" + c.Entity
	if l.kind == sinks.Log {
		letter.DedupKey = "deliver/" + c.Service + "/" + c.Key
	}
	v.letter = &letter
	return nil
}

// refuse appends to the inbox that the contents of changes are not at the target, before their
// positions pass: the owners of the entities hold the same content back, and let any other through.
// A crash repeats that without effect. It retries until stop ends.
func (l *deadLetters) refuse(work, stop context.Context, why string, items []*core.Item) error {
	if len(items) == 0 {
		return nil
	}
	records := make([]change.Record, len(items))
	for n, i := range items {
		c := change.Control{
			ID: uuid.NewString(), Action: change.Refuse, Services: []string{l.service.Name}, Version: i.Version, Actor: change.Deliver, Reason: why,
		}
		if v, _ := i.Data.(*delivery); v != nil {
			c.Trace = v.change.Trace
		}
		records[n] = change.Record{Entity: i.Entity, Control: &c}
	}
	return l.request(work, stop, "append a refusal to the inbox", records...)
}

// letterOf returns the dead letter of an undelivered change.
func (l *deadLetters) letterOf(i *core.Item, c *change.Change) (letter store.DeadLetter, err error) {
	letter = store.DeadLetter{
		Stage: store.StageDeliver, Reason: shortened(i.Reason, maxDetail), Created: i.Since, Service: l.service.Name, Entity: i.Entity, Version: i.Version,
		Position: i.Position, Part: i.Partition, Attempts: i.Attempts, NextTry: i.Next,
	}
	if c != nil {
		letter.Payload = c.AppendRecord(nil)
		beside := LetterHeaders{
			Time: c.Time.UnixMilli(), Revision: c.Revision, Content: c.Content, Effect: c.Effect, Planned: c.Planned, Mends: c.Mends, Trace: c.Trace,
		}
		if !c.At.IsZero() {
			beside.At = c.At.UnixMilli()
		}
		letter.Headers, err = json.Marshal(beside)
	}
	return letter, err
}
