package simulation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Memory is a store of maps, as far as the stages use one. Every method that writes is one transaction
// under one lock, so it is serializable; it passes their part of the conformance suite.
// Stored values are
// never changed in place, so a Snapshot costs no more than its maps.
type Memory struct {
	store.Store               // nil: the stages call none of the methods that Memory lacks
	lock        chan struct{} // held when full: waiting for it can be given up
	// mu is held in a transaction, but not while one calls back: then others read
	// the committed state.
	mu    sync.Mutex
	state state
	rules Rules
	// session is the run of the server, which a restore ends.
	session int
}

// NewMemory returns an empty store. Inside a bubble of testing/synctest it must
// be made there.
func NewMemory() *Memory {
	return &Memory{lock: make(chan struct{}, 1), state: state{
		marks: map[store.Partition]mark{}, entities: map[string]store.Entity{},
		services: map[string]int32{}, keys: map[string]int64{},
		progress: map[int32]progress{}, frames: map[int32][]store.Frame{}, positions: map[string]store.SourcePosition{}, logs: map[string]store.SourceLog{}, floors: map[floorKey]store.Floor{},
	}}
}

// state is everything that a restore puts back, also the counters of ids.
type state struct {
	revisions []store.Revision
	inboxes   []store.Inbox
	services  map[string]int32
	marks     map[store.Partition]mark
	frames    map[int32][]store.Frame // of the changes log, by partition; ascending
	entities  map[string]store.Entity
	letters   []store.DeadLetter // ascending id
	letterID  int64
	keys      map[string]int64 // dedup key to letter
	audits    []store.Audit    // ascending id
	auditID   int64
	progress  map[int32]progress
	positions map[string]store.SourcePosition // of sources, by source and identity
	logs      map[string]store.SourceLog
	floors    map[floorKey]store.Floor
	// tokenAlone: watermarks are compared by it alone.
	tokenAlone bool
	// blind: entities are overwritten in any state. The comparison too would keep decisions of a
	// stale cache from being written, so without it nothing says that caches
	// must be dropped.
	blind bool
}

type mark struct {
	next   int64
	lastTo change.Version
	token  store.Token
	ended  bool // a newer generation was taken over: nobody has it any more
}

func (s state) clone() state {
	s.revisions, s.inboxes, s.frames = slices.Clone(s.revisions), slices.Clone(s.inboxes), maps.Clone(s.frames)
	for p, frames := range s.frames {
		s.frames[p] = slices.Clip(frames)
	}
	s.letters, s.audits = slices.Clone(s.letters), slices.Clone(s.audits)
	s.services, s.marks, s.entities = maps.Clone(s.services), maps.Clone(s.marks), maps.Clone(s.entities)
	s.keys = maps.Clone(s.keys)
	s.progress, s.positions = maps.Clone(s.progress), maps.Clone(s.positions)
	s.logs, s.floors = maps.Clone(s.logs), maps.Clone(s.floors)
	return s
}

// Snapshot is a backup.
type Snapshot struct{ state state }

// Snapshot makes a backup of the committed state.
func (m *Memory) Snapshot(ctx context.Context) (Snapshot, error) {
	var s Snapshot
	err := m.run(ctx, func() error { s.state = m.state.clone(); return nil })
	return s, err
}

// run runs one transaction. f changes the state only when nothing can fail any more.
func (m *Memory) run(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.lock }()
	m.mu.Lock()
	defer m.mu.Unlock()
	return f()
}

// look reads the committed state; it waits for no transaction that calls back.
func (m *Memory) look(ctx context.Context, f func(*state)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.state)
	return nil
}

func bug(format string, args ...any) error {
	return store.WithClass(fmt.Errorf(format, args...), store.Fatal)
}

func holdable(id string) error {
	if !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return store.WithClass(errors.New("memory: an entity id is not UTF-8 or holds a NUL"), store.Poison)
	}
	return nil
}

func now() time.Time { return micros(time.Now()) }

func micros(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// TakeOver implements store.Decisions.
func (m *Memory) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) (taken []store.TakenOver, err error) {
	err = m.run(ctx, func() error {
		s := &m.state
		for i, p := range partitions {
			if slices.ContainsFunc(partitions[:i], func(o store.Partition) bool { return o.Number == p.Number }) {
				return bug("memory: take over: partition %d twice", p.Number)
			}
		}
		for known := range s.marks {
			if slices.ContainsFunc(partitions, func(p store.Partition) bool { return known.Generation > p.Generation }) {
				return store.ErrFenced
			}
		}
		for _, p := range partitions {
			at, known := s.marks[p]
			if !known {
				at.lastTo = s.newest()[p.Number].LastTo
			}
			at.token = token
			for older, was := range s.marks {
				if older.Generation < p.Generation {
					was.ended = true
					s.marks[older] = was
				}
			}
			s.marks[p] = at
			taken = append(taken, store.TakenOver{Partition: p, NextOffset: at.next, LastTo: at.lastTo, Floors: store.FloorsOf(p, slices.Collect(maps.Values(s.floors)))})
		}
		return nil
	})
	return taken, err
}

// Decide implements store.Decisions. With nothing to load it compares as late as it
// may: when it writes.
func (m *Memory) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	held := false
	defer func() {
		if held {
			<-m.lock
		}
	}()
	var loaded store.Loaded
	// begin locks, compares and loads.
	begin := func() error {
		if held {
			return nil
		}
		select {
		case m.lock <- struct{}{}:
			held = true
		case <-ctx.Done():
			return ctx.Err()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		s := &m.state
		if n := len(s.revisions); n == 0 || s.revisions[n-1].Number != d.Revision {
			return store.ErrSuperseded
		}
		if err := s.check(d.Moves); err != nil {
			return err
		}
		entities := make([]store.Entity, len(d.Entities))
		for i, id := range d.Entities {
			if err := holdable(id); err != nil {
				return err
			}
			entities[i] = s.entities[id]
			entities[i].ID = id
		}
		loaded.Entities = entities
		return nil
	}
	if len(d.Entities) > 0 || len(d.Claims) > 0 {
		if err := begin(); err != nil {
			return err
		}
	}
	out, err := decide(loaded)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = begin()
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.state.valid(d, out, loaded); err != nil {
		return err
	}
	m.state.commit(d, out)
	return nil
}

// check compares watermarks.
func (s *state) check(moves []store.WatermarkStep) error {
	for _, mv := range moves {
		if at, ok := s.marks[mv.Partition]; !ok || at.ended || at.next != mv.From && !s.tokenAlone || at.token != mv.Token {
			return store.ErrFenced
		}
	}
	return nil
}

// valid says why out cannot be written.
func (s *state) valid(d store.Decision, out store.Outcome, loaded store.Loaded) error {
	for _, e := range out.Entities {
		if err := holdable(e.ID); err != nil {
			return err
		}
		if len(e.Docs) > 0 && (!utf8.Valid(e.Docs) || !json.Valid(e.Docs)) {
			return store.WithClass(errors.New("memory: the documents of an entity are not JSON"), store.Poison)
		}
	}
	if _, err := store.SortWrites(out.Entities); err != nil {
		return err
	}
	for _, e := range out.Entities {
		had := s.entities[e.ID]
		if slices.Contains(out.Purged, e.ID) {
			had = store.Entity{}
		}
		if had.Writes != e.Writes && !s.blind {
			return store.ErrFenced
		}
	}
	moved := func(p store.Partition) bool {
		return slices.ContainsFunc(d.Moves, func(m store.WatermarkStep) bool { return m.Partition == p })
	}
	for _, f := range out.Frames {
		if !moved(f.Partition) {
			return bug("memory: a frame of partition %v, whose watermark this decision does not hold", f.Partition)
		}
	}
	for _, f := range out.Floors {
		if !moved(f.Partition) {
			return bug("memory: a floor of partition %v, whose watermark this decision does not hold", f.Partition)
		}
	}
	for _, a := range out.Audit {
		if len(a.Detail) > 0 && !json.Valid(a.Detail) {
			return store.WithClass(errors.New("memory: the detail of an audit entry is not JSON"), store.Poison)
		}
	}
	return nil
}

// commit writes an outcome that is valid.
func (s *state) commit(d store.Decision, out store.Outcome) {
	for _, mv := range d.Moves {
		at := s.marks[mv.Partition]
		at.next, at.token = mv.To, mv.Token
		s.marks[mv.Partition] = at
	}
	for _, id := range out.Purged {
		delete(s.entities, id)
	}
	for _, e := range out.Entities {
		e.Found, e.Deleted = true, micros(e.Deleted)
		if e.Docs = bytes.Clone(e.Docs); len(e.Docs) == 0 {
			e.Docs = []byte("{}")
		}
		e.Fence, e.Fingerprint = bytes.Clone(e.Fence), bytes.Clone(e.Fingerprint)
		e.Writes++
		e.States = written(s.entities[e.ID].States, e.States)
		s.entities[e.ID] = e
	}
	for _, f := range out.Frames {
		at := s.marks[f.Partition]
		at.lastTo = f.To
		s.marks[f.Partition] = at
		s.frames[f.Partition.Number] = append(s.frames[f.Partition.Number], store.Frame{To: f.To, Body: append([]byte{}, f.Body...)})
	}
	for _, f := range out.Floors {
		s.floors[floorKey{f.Partition, f.Log}] = f
	}
	for _, b := range out.Barriers {
		if row := s.logs[b.Log]; row.Number < b.Number || row.Number == b.Number && row.Name != b.Name {
			s.logs[b.Log] = store.SourceLog{Session: b, Version: row.Version + 1, Torn: true, State: row.State}
		}
	}
	s.addLetters(out.Letters)
	s.settle(out.Settled)
	for _, a := range out.Audit {
		s.auditID++
		a.ID, a.Time, a.Detail = s.auditID, now(), bytes.Clone(a.Detail)
		a.Actor, a.Action, a.Reason = store.SanitizeText(a.Actor), store.SanitizeText(a.Action), store.SanitizeText(a.Reason)
		a.Entity, a.Service = store.SanitizeText(a.Entity), store.SanitizeText(a.Service)
		s.audits = append(s.audits, a)
	}
}

// written returns the stored states after changed pages of states were written.
func written(stored, states store.States) store.States {
	pages := states.Changed()
	changed := func(r store.Row) bool {
		return slices.ContainsFunc(pages, func(p store.Page) bool { return p.Number == store.PageOf(r.Service) })
	}
	var whole store.States
	for _, r := range slices.DeleteFunc(stored.All(""), changed) {
		whole.Set(r)
	}
	for _, r := range states.All("") {
		if changed(r) {
			whole.Set(r)
		}
	}
	return whole.Stored()
}

func byDeletion(a, b store.Tombstone) int {
	return cmp.Or(a.Deleted.Compare(b.Deleted), cmp.Compare(a.Entity, b.Entity))
}

// Tombstones implements store.Reader.
func (m *Memory) Tombstones(ctx context.Context, before time.Time, after store.Tombstone, limit int) (stones []store.Tombstone, err error) {
	err = m.look(ctx, func(s *state) {
		for id, e := range s.entities {
			t := store.Tombstone{Entity: id, Version: e.Version, Deleted: e.Deleted}
			if !e.Deleted.IsZero() && e.Deleted.Before(before) && byDeletion(t, after) > 0 &&
				!slices.ContainsFunc(s.letters, func(l store.DeadLetter) bool {
					return l.Entity == id && (l.State == store.LetterRetrying || l.State == store.LetterOpen && l.Stage == store.StageDeliver)
				}) {
				stones = append(stones, t)
			}
		}
		slices.SortFunc(stones, byDeletion)
		stones = stones[:min(len(stones), limit)]
	})
	return stones, err
}

func (s *state) read(keys []store.Key) ([]store.Row, error) {
	rows := make([]store.Row, len(keys))
	for i, k := range keys {
		if err := holdable(k.Entity); err != nil {
			return nil, err
		}
		states := s.entities[k.Entity].States
		rows[i] = states.Get(k.Service)
		rows[i].Key = k
	}
	return rows, nil
}

// Rows implements store.Deliveries.
func (m *Memory) Rows(ctx context.Context, keys []store.Key) (rows []store.Row, err error) {
	err = m.run(ctx, func() (err error) { rows, err = m.state.read(keys); return err })
	return rows, err
}
