package page

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

// tokens are values that a browser has random tokens of: the cookies of sessions, and links.
// They are kept by the hash of the token. Safe for concurrent use.
type tokens[T any] struct {
	life time.Duration
	most int
	now  func() time.Time

	mu  sync.Mutex
	all map[[32]byte]expiring[T] // guarded by mu
}

type expiring[T any] struct {
	value T
	until time.Time
}

func newTokens[T any](life time.Duration, most int, now func() time.Time) *tokens[T] {
	return &tokens[T]{life: life, most: most, now: now, all: map[[32]byte]expiring[T]{}}
}

// add keeps a value and returns its token. Beyond the limit the oldest one ends.
func (t *tokens[T]) add(value T) (token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	var oldest [32]byte
	for key, x := range t.all {
		if !now.Before(x.until) {
			delete(t.all, key)
		} else if x.until.Before(t.all[oldest].until) || t.all[oldest].until.IsZero() {
			oldest = key
		}
	}
	if len(t.all) >= t.most {
		delete(t.all, oldest)
	}
	token = rand.Text() + rand.Text()
	t.all[sha256.Sum256([]byte(token))] = expiring[T]{value, now.Add(t.life)}
	return token
}

// find returns the value of a token, as long as it lasts.
func (t *tokens[T]) find(token string) (value T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.valid(sha256.Sum256([]byte(token)))
}

// valid returns the value of a key that lasts. The caller holds mu.
func (t *tokens[T]) valid(key [32]byte) (value T, ok bool) {
	x := t.all[key]
	if ok = t.now().Before(x.until); ok {
		value = x.value
	}
	return value, ok
}

// end is find, and ends the token: of several callers one gets the value.
func (t *tokens[T]) end(token string) (value T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	defer delete(t.all, key)
	return t.valid(key)
}
