package gate

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Memory is a gate inside the process. It forgets everything when the process
// ends, and two processes do not see each other's marks: both cost work, never
// correctness. Its calls do not block for long and fail only when ctx has
// ended. Any number of goroutines may use it.
type Memory struct {
	ttl     time.Duration
	entries int

	mu    sync.Mutex
	marks map[memoryKey]*list.Element // of *mark
	age   *list.List                  // oldest mark in front; all have one TTL, so it expires first
}

var _ Gate = (*Memory)(nil)

// memoryKey is a digest of source and event id: of one size, and without a
// second pair that shares it.
type memoryKey [sha256.Size]byte

type mark struct {
	key     memoryKey
	hash    Hash
	expires time.Time
}

// NewMemory returns an empty gate whose marks last for ttl. It holds at most that many entries,
// some 250 bytes each for ids of any length. The oldest entries make room.
func NewMemory(ttl time.Duration, entries int) *Memory {
	return &Memory{ttl: ttl, entries: entries, marks: map[memoryKey]*list.Element{}, age: list.New()}
}

// Seen implements Gate.
func (m *Memory) Seen(ctx context.Context, entries []Entry) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory gate: seen: %w", err)
	}
	keys := newMemoryKeys(entries)
	seen := make([]bool, len(entries))
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range keys {
		if el, ok := m.marks[k]; ok {
			mk := el.Value.(*mark)
			seen[i] = mk.hash == entries[i].Hash && now.Before(mk.expires)
		}
	}
	return seen, nil
}

// Mark implements Gate.
func (m *Memory) Mark(ctx context.Context, entries []Entry) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory gate: mark: %w", err)
	}
	keys := newMemoryKeys(entries)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range keys {
		if el, ok := m.marks[k]; ok {
			mk := el.Value.(*mark)
			mk.hash, mk.expires = entries[i].Hash, now.Add(m.ttl)
			m.age.MoveToBack(el)
			continue
		}
		m.marks[k] = m.age.PushBack(&mark{key: k, hash: entries[i].Hash, expires: now.Add(m.ttl)})
	}
	for el := m.age.Front(); el != nil; el = m.age.Front() {
		mk := el.Value.(*mark)
		if m.age.Len() <= m.entries && now.Before(mk.expires) {
			break
		}
		delete(m.marks, mk.key)
		m.age.Remove(el)
	}
	return nil
}

// newMemoryKeys hashes outside the lock.
func newMemoryKeys(entries []Entry) []memoryKey {
	keys := make([]memoryKey, len(entries))
	h := sha256.New()
	for i, e := range entries {
		h.Reset()
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(e.Source))))
		h.Write([]byte(e.Source))
		h.Write([]byte(e.EventID))
		h.Sum(keys[i][:0])
	}
	return keys
}

// Ping implements Gate. A Memory always answers.
func (m *Memory) Ping(ctx context.Context) error { return ctx.Err() }

// Close implements Gate. It forgets all marks.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.marks)
	m.age.Init()
	return nil
}
