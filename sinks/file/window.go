package file

import (
	"crypto/sha256"
	"encoding/hex"
)

// key is an idempotency key in 16 bytes.
type key [16]byte

// keyOf packs a key of 32 hex digits; anything else is hashed.
func keyOf(s string) (k key) {
	if n, err := hex.Decode(k[:], []byte(s[:min(len(s), 2*len(k))])); err == nil && n == len(k) && len(s) == 2*len(k) {
		return k
	}
	sum := sha256.Sum256([]byte(s))
	copy(k[:], sum[:])
	return k
}

// window knows the last keys that were added, up to a number.
type window struct {
	known map[key]struct{}
	ring  []key // grows to limit, then next is the oldest
	next  int
	limit int
}

func newWindow(limit int) *window {
	return &window{known: map[key]struct{}{}, limit: limit}
}

func (w *window) has(k key) bool {
	_, ok := w.known[k]
	return ok
}

// add remembers a key. A known key keeps its place.
func (w *window) add(k key) {
	if w.has(k) {
		return
	}
	w.known[k] = struct{}{}
	if len(w.ring) < w.limit {
		w.ring = append(w.ring, k)
		return
	}
	delete(w.known, w.ring[w.next])
	w.ring[w.next] = k
	w.next = (w.next + 1) % w.limit
}
