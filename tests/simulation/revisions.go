package simulation

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/store"
)

// Activate implements store.Configurations.
func (m *Memory) Activate(ctx context.Context, fingerprint []byte, force bool, _ store.Inbox, note store.Note) (active store.Revision, err error) {
	err = m.run(ctx, func() error {
		s := &m.state
		if n := len(s.revisions); n > 0 && bytes.Equal(s.revisions[n-1].Fingerprint, fingerprint) {
			active = s.revisions[n-1]
			return nil
		}
		once := slices.ContainsFunc(s.revisions, func(r store.Revision) bool { return bytes.Equal(r.Fingerprint, fingerprint) })
		if once && !force {
			return store.ErrSuperseded
		}
		noted, err := s.note(note)
		if err != nil {
			return err
		}
		active = store.Revision{Number: noted.Revision, Fingerprint: bytes.Clone(fingerprint), Activated: now()}
		s.revisions = append(s.revisions, active)
		return nil
	})
	return active, err
}

// note calls note. Nothing is ever in doubt: no schedule has both a restore and a second
// configuration.
func (s *state) note(note store.Note) (store.Noted, error) {
	var h store.History
	if n := len(s.revisions); n > 0 {
		h.Active = s.revisions[n-1].Number
	}
	if n := len(s.inboxes); n > 0 {
		h.Generation = s.inboxes[n-1].Generation
	}
	if note == nil {
		return store.Noted{Revision: h.Active + 1, Generation: h.Generation + 1}, nil
	}
	return note(h)
}

func (s *state) inbox(topic, id string) (store.Inbox, bool) {
	for _, i := range slices.Backward(s.inboxes) { // the newest
		if i.Topic == topic && i.TopicID == id {
			return i, true
		}
	}
	return store.Inbox{}, false
}

// KnownInbox implements store.Configurations.
func (m *Memory) KnownInbox(ctx context.Context, topic, topicID string) (known store.Inbox, err error) {
	err = m.run(ctx, func() error {
		var ok bool
		if known, ok = m.state.inbox(topic, topicID); !ok {
			return store.ErrNotFound
		}
		return nil
	})
	return known, err
}

// ResolveInbox implements store.Configurations.
func (m *Memory) ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, note store.Note) (inbox store.Inbox, err error) {
	err = m.run(ctx, func() error {
		if known, ok := m.state.inbox(topic, topicID); ok {
			if known.Partitions != partitions {
				return store.WithClass(store.ErrRepartitioned, store.Fatal)
			}
			inbox = known
			return nil
		}
		inbox = store.Inbox{Topic: topic, TopicID: topicID, Partitions: partitions}
		return m.state.openInbox(&inbox, note)
	})
	return inbox, err
}

// openInbox opens inbox under the noted generation.
func (s *state) openInbox(inbox *store.Inbox, note store.Note) error {
	noted, err := s.note(note)
	if err != nil {
		return err
	}
	inbox.Generation = noted.Generation
	s.inboxes = append(s.inboxes, *inbox)
	return nil
}

// RenewInbox implements store.Configurations.
func (m *Memory) RenewInbox(ctx context.Context, inbox store.Inbox, from map[int32]int64, note store.Note) (renewed store.Inbox, err error) {
	err = m.run(ctx, func() error {
		var known bool
		if renewed, known = m.state.inbox(inbox.Topic, inbox.TopicID); !known {
			return store.ErrNotFound
		}
		if renewed.Generation != inbox.Generation {
			return nil
		}
		if err := m.state.openInbox(&renewed, note); err != nil {
			return err
		}
		for p, at := range maps.Clone(m.state.marks) {
			was := at
			was.ended = true
			m.state.marks[p] = was
			if p.Generation == inbox.Generation {
				if next, ok := from[p.Number]; ok {
					at.next = next
				}
				m.state.marks[store.Partition{Generation: renewed.Generation, Number: p.Number}] = mark{next: at.next, lastTo: at.lastTo}
			}
		}
		return nil
	})
	return renewed, err
}

// Services implements store.Configurations.
func (m *Memory) Services(ctx context.Context, names []string) (map[string]int32, error) {
	numbers := make(map[string]int32, len(names))
	err := m.run(ctx, func() error {
		for _, name := range names {
			n, ok := m.state.services[name]
			if !ok {
				n = int32(len(m.state.services) + 1)
				m.state.services[name] = n
			}
			numbers[name] = n
		}
		return nil
	})
	return numbers, err
}
