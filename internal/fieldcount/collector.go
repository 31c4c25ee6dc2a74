package fieldcount

import (
	"encoding/json"
	"fmt"
	"sync"
)

// Summary is the counts of all sources, by their name.
type Summary map[string]*Counts

// Merge adds another summary, which stays as it is.
func (s Summary) Merge(other Summary) {
	for source, add := range other {
		if s[source] == nil {
			s[source] = &Counts{}
		}
		s[source].Merge(add)
	}
}

// MergeInto returns the stored form of stored (nil means empty) and s together. The error says
// that stored is no summary.
func (s Summary) MergeInto(stored []byte) ([]byte, error) {
	all := Summary{}
	if stored != nil {
		if err := json.Unmarshal(stored, &all); err != nil {
			return nil, fmt.Errorf("stored counts of suppressed events: %w", err)
		}
	}
	all.Merge(s)
	return json.Marshal(all)
}

const (
	// dense is how many observations of a source are all counted since the last Take. Beyond that
	// one in sparse is counted.
	dense  = 1000
	sparse = 16
)

// Collector receives the observations of the deciding goroutines of a process.
// All methods may be called from any goroutine.
type Collector struct {
	mu      sync.Mutex
	summary Summary
	seen    map[string]int // observations since the last Take
}

// NewCollector returns an empty one.
func NewCollector() *Collector { return &Collector{summary: Summary{}, seen: map[string]int{}} }

// Rate returns one of how many events of a source to observe now.
func (b *Collector) Rate(source string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[source] < dense {
		return 1
	}
	return sparse
}

// Selected reports whether an event belongs to the sample of one in rate. Its version decides, so
// the answer for an event is always the same, and neighbouring events get different ones.
func Selected(version uint64, rate int64) bool {
	// Fibonacci hashing: the upper bits are spread evenly.
	return rate <= 1 || int64((version*0x9E3779B97F4A7C15)>>33)%rate == 0
}

// Count adds events that were decided, noise being those that changed nothing.
func (b *Collector) Count(source string, events, noise int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(source)
	s.Events += events
	s.Noise += noise
}

// Observe adds a suppressed event. read reports whether a projection can read at a path.
func (b *Collector) Observe(source string, o Observation, read func(Path) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[source]++
	b.of(source).Add(o, read)
}

func (b *Collector) of(source string) *Counts {
	s := b.summary[source]
	if s == nil {
		s = &Counts{}
		b.summary[source] = s
	}
	return s
}

// Take returns and clears the observations since the last Take, or nil without any.
func (b *Collector) Take() Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.summary) == 0 {
		return nil
	}
	taken := b.summary
	b.summary, b.seen = Summary{}, map[string]int{}
	return taken
}

// Restore adds counts that could not be stored.
func (b *Collector) Restore(taken Summary) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.summary.Merge(taken)
}
