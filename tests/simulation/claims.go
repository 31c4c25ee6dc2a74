package simulation

import (
	"github.com/seed-86dfc502/weir/store"
)

// loaded looks up what d asks for beside entities.
func (s *state) loaded(d store.Decision, entities []store.Entity) store.Loaded {
	l := store.Loaded{Entities: entities}
	for _, id := range d.Claims {
		if c, ok := s.decided[id]; ok {
			put(&l.Decided, id, c.Version)
		}
	}
	for _, key := range d.Keys {
		if id, ok := s.uses[key]; ok && len(d.Claims) > 0 {
			put(&l.Uses, key, s.decided[id])
		}
	}
	return l
}

// put makes a map with its first entry: one without entries is nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// validClaims says why claims cannot be written.
func (s *state) validClaims(claims []store.Decided, had map[store.KeyDigest]store.Decided) error {
	if _, distinct := store.SortDecided(claims); !distinct {
		return bug("memory: a claim or a key has its effect twice in one transaction")
	}
	for _, c := range claims {
		if _, twice := s.decided[c.ID]; twice {
			return store.ErrFenced
		}
		if id, taken := s.uses[c.Key]; taken && had[c.Key].ID != id {
			return store.ErrFenced
		}
	}
	return nil
}

// putClaims writes claims that are valid.
func (s *state) putClaims(claims []store.Decided) {
	for _, c := range claims {
		if c.Key != (store.KeyDigest{}) {
			if id, ok := s.uses[c.Key]; ok {
				d := s.decided[id]
				d.Use = store.Use{}
				s.decided[id] = d
			}
			s.uses[c.Key] = c.ID
		}
		s.decided[c.ID] = c
	}
}
