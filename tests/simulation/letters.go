package simulation

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

func (s *state) addLetters(letters []store.DeadLetter) {
	for _, l := range letters {
		if id, known := s.keys[l.DedupKey]; known {
			if i, ok := s.letter(id); ok && l.Position > s.letters[i].Position {
				again := &s.letters[i]
				again.Attempts, again.Size = l.Attempts, int64(len(l.Payload))
				again.Last, again.Count, again.Code, again.Reason = now(), again.Count+1, store.SanitizeText(l.Code), store.SanitizeText(l.Reason)
				again.Version, again.Position, again.State = l.Version, l.Position, store.LetterOpen
				again.Later = l.Later
				again.Payload, again.Headers = append([]byte{}, l.Payload...), bytes.Clone(l.Headers)
			}
			continue
		}
		s.letterID++
		l.ID, l.Created, l.Count, l.State, l.Original = s.letterID, now(), 1, store.LetterOpen, nil
		l.Last, l.NextTry, l.Size = l.Created, time.Time{}, int64(len(l.Payload))
		l.Stage = store.Stage(store.SanitizeText(string(l.Stage)))
		l.Code, l.Reason, l.Source, l.Service = store.SanitizeText(l.Code), store.SanitizeText(l.Reason), store.SanitizeText(l.Source), store.SanitizeText(l.Service)
		l.Entity, l.EventID, l.Topic = store.SanitizeText(l.Entity), store.SanitizeText(l.EventID), store.SanitizeText(l.Topic)
		l.Payload, l.Headers = append([]byte{}, l.Payload...), bytes.Clone(l.Headers)
		s.keys[l.DedupKey] = l.ID
		s.letters = append(s.letters, l)
	}
}

// retry writes the retrying rows of a swap that was done.
func (s *state) retry(p store.ProgressSwap) {
	s.letters = slices.Clone(s.letters)
	stored := func(key string) *store.DeadLetter {
		if i, ok := s.letter(s.keys[key]); ok && key != "" {
			return &s.letters[i]
		}
		return nil
	}
	remove := func(key string) {
		if l := stored(key); l != nil && l.State == store.LetterRetrying {
			i, _ := s.letter(l.ID)
			s.letters = slices.Delete(s.letters, i, i+1)
			delete(s.keys, key)
		}
	}
	for _, key := range p.Ended {
		remove(key)
	}
	for _, l := range p.Retrying {
		row := stored(l.DedupKey)
		if row == nil {
			s.addLetters([]store.DeadLetter{l})
			if row = stored(l.DedupKey); !l.Created.IsZero() {
				row.Created = l.Created
			}
		}
		l.ID, l.Created, l.Last, l.Count, l.State, l.Later = row.ID, row.Created, now(), 1, store.LetterRetrying, 0
		if l.Payload == nil {
			l.Payload, l.Headers = row.Payload, row.Headers
		}
		l.Payload, l.Headers, l.Size = append([]byte{}, l.Payload...), bytes.Clone(l.Headers), int64(len(l.Payload))
		*row = l
	}
	for _, c := range p.Letters {
		l := c.DeadLetter
		if row := stored(c.Row); row != nil && row.State == store.LetterRetrying {
			if l.Payload == nil {
				l.Payload, l.Headers = row.Payload, row.Headers
			}
			l.Attempts = cmp.Or(l.Attempts, row.Attempts)
			if stored(l.DedupKey) == nil {
				l.ID, l.Created, l.Last, l.Count, l.State, l.Size = row.ID, row.Created, now(), 1, store.LetterOpen, int64(len(l.Payload))
				*row = l
				delete(s.keys, c.Row)
				s.keys[l.DedupKey] = l.ID
				continue
			}
		}
		s.addLetters([]store.DeadLetter{l})
		remove(c.Row)
	}
}

// Retrying implements store.Deliveries.
func (m *Memory) Retrying(ctx context.Context, keys []string) (rows []store.DeadLetter, err error) {
	err = m.run(ctx, func() error {
		for _, key := range keys {
			if i, ok := m.state.letter(m.state.keys[key]); ok && m.state.letters[i].State == store.LetterRetrying {
				rows = append(rows, m.state.letters[i])
			}
		}
		return nil
	})
	return rows, err
}

// Offered implements store.DeadLetters.
func (m *Memory) Offered(ctx context.Context, ids []int64) error {
	return m.run(ctx, func() error {
		for _, id := range ids {
			if i, ok := m.state.letter(id); ok && m.state.letters[i].State == store.LetterOpen {
				m.state.letters[i].Later = 0
			}
		}
		return nil
	})
}

// letter finds a letter by its id.
func (s *state) letter(id int64) (int, bool) {
	return slices.BinarySearchFunc(s.letters, id, func(l store.DeadLetter, id int64) int { return cmp.Compare(l.ID, id) })
}

func (s *state) settle(settled []store.LetterResolution) {
	for _, x := range settled {
		for i := range s.letters {
			if l := &s.letters[i]; x.ID == 0 && l.Service == x.Service && l.Entity == x.Entity && l.State == store.LetterOpen && l.Stage == store.StageDeliver && l.Version < x.Version {
				l.State = x.State
			}
		}
		if i, ok := s.letter(x.ID); ok && (x.Version == 0 || s.letters[i].Version <= x.Version) && (s.letters[i].State == store.LetterOpen || s.letters[i].State == store.LetterDiscarded) {
			s.letters[i].State = x.State
		}
	}
}

// AddLetters implements store.DeadLetters.
func (m *Memory) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	return m.run(ctx, func() error { m.state.addLetters(letters); return nil })
}

// ListLetters implements store.DeadLetters.
func (m *Memory) ListLetters(ctx context.Context, f store.LetterFilter) (page []store.DeadLetter, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	is := func(want, got string) bool { return want == "" || want == got }
	err = m.run(ctx, func() error {
		letters := slices.Clone(m.state.letters)
		if f.NewestFirst {
			slices.Reverse(letters)
		}
		for _, l := range letters {
			behind := l.ID > f.AfterID
			if f.NewestFirst {
				behind = f.AfterID == 0 || l.ID < f.AfterID
			}
			if len(page) < f.Limit && behind && is(string(f.Stage), string(l.Stage)) && is(f.Source, l.Source) &&
				is(f.Service, l.Service) && is(f.Entity, l.Entity) && is(f.Code, l.Code) && is(string(f.State), string(l.State)) {
				l.Payload, l.Original, l.Later = nil, nil, 0
				page = append(page, l)
			}
		}
		return nil
	})
	return page, err
}

// DueLetters implements store.DeadLetters.
func (m *Memory) DueLetters(ctx context.Context, services []string, after int64, limit int) (page []store.DeadLetter, err error) {
	err = m.run(ctx, func() error {
		for _, l := range m.state.letters {
			wait := min(l.Later<<min(l.Count-1, 20), store.LaterMax)
			if len(page) < limit && l.ID > after && l.Later > 0 && l.State == store.LetterOpen && slices.Contains(services, l.Service) && !now().Before(l.Last.Add(wait)) {
				l.Payload, l.Original, l.Later = nil, nil, 0
				page = append(page, l)
			}
		}
		return nil
	})
	return page, err
}

// Letter implements store.DeadLetters.
func (m *Memory) Letter(ctx context.Context, id int64) (letter store.DeadLetter, err error) {
	err = m.run(ctx, func() error {
		i, ok := m.state.letter(id)
		if !ok {
			return store.ErrNotFound
		}
		letter = m.state.letters[i]
		letter.Later = 0
		return nil
	})
	return letter, err
}

// Entity implements store.Reader.
func (m *Memory) Entity(ctx context.Context, id string) (e store.Entity, err error) {
	err = m.run(ctx, func() error {
		var ok bool
		if e, ok = m.state.entities[id]; !ok {
			return store.ErrNotFound
		}
		return nil
	})
	return e, err
}

// Watermarks implements store.Reader.
func (m *Memory) Watermarks(ctx context.Context) (map[store.Partition]int64, error) {
	marks := map[store.Partition]int64{}
	err := m.run(ctx, func() error {
		for p, at := range m.state.marks {
			marks[p] = at.next
		}
		return nil
	})
	return marks, err
}

// Audits implements store.Reader.
func (m *Memory) Audits(ctx context.Context, f store.AuditFilter) (page []store.Audit, err error) {
	err = m.run(ctx, func() error {
		for _, a := range m.state.audits {
			if a.ID > f.AfterID && len(page) < f.Limit {
				page = append(page, a)
			}
		}
		return nil
	})
	return page, err
}

// Entities implements store.Reader.
func (m *Memory) Entities(ctx context.Context, after string, limit int) (page []store.Entity, err error) {
	err = m.run(ctx, func() error {
		for _, id := range slices.Sorted(maps.Keys(m.state.entities)) {
			if id > after && len(page) < limit {
				page = append(page, m.state.entities[id])
			}
		}
		return nil
	})
	return page, err
}
