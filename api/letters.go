package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/api/problem"
)

// lettersAge is for how long a count of open dead letters is used.
const lettersAge = 5 * time.Second

// Letters bounds the open dead letters of one source. It may be used concurrently;
// nil has no bound.
type Letters struct {
	most  int64
	count func(ctx context.Context, source string, most int64) (int64, error)
	now   func() time.Time

	mu   sync.Mutex
	seen map[string]lettersSeen // guarded by mu; by source, of which there are few
}

type lettersSeen struct {
	full bool
	at   time.Time
}

// NewLetters returns a bound of most letters of a source, which count counts up to a
// number; nil where most is 0.
func NewLetters(most int64, count func(ctx context.Context, source string, most int64) (int64, error)) *Letters {
	if most <= 0 {
		return nil
	}
	return &Letters{most: most, count: count, now: time.Now, seen: map[string]lettersSeen{}}
}

// Admit reports whether the source has room for more, or answers 429. A store that
// does not answer is no reason to refuse: the request then fails by itself or not.
func (l *Letters) Admit(w http.ResponseWriter, r *http.Request, source string) bool {
	if l == nil || !l.full(r.Context(), source) {
		return true
	}
	w.Header().Set("Connection", "close") // the body is not read
	RetryAfter(w, time.Minute)
	problem.Write(w, problem.Problem{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf(
		"source %s has %d open dead letters, which is the limit: resolve some (weir dlq list --source %s), then send this again", source, l.most, source)})
	return false
}

func (l *Letters) full(ctx context.Context, source string) bool {
	l.mu.Lock()
	last, known := l.seen[source]
	l.mu.Unlock()
	if known && l.now().Sub(last.at) < lettersAge {
		return last.full
	}
	n, err := l.count(ctx, source, l.most)
	if err != nil {
		return false
	}
	last = lettersSeen{full: n >= l.most, at: l.now()}
	l.mu.Lock()
	l.seen[source] = last
	l.mu.Unlock()
	return last.full
}
