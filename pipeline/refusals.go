package pipeline

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/operate"
)

// refusals records the configurations and files that the process refused, keeping their
// earlier content. Safe for concurrent use.
type refusals struct {
	mu  sync.Mutex
	all map[string]operate.Item // by what
}

// note records the result of a reading. A nil error ends the refusal.
func (r *refusals) note(what string, err error, do string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.all, what)
		return
	}
	if r.all == nil {
		r.all = map[string]operate.Item{}
	}
	since := time.Now().UTC()
	if was, again := r.all[what]; again {
		since = was.Since
	}
	r.all[what] = operate.Item{What: what, Level: operate.LevelDegraded, Since: since, Why: "refused; the process keeps its earlier content: " + err.Error(), Do: do}
}

func (r *refusals) items() []operate.Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.all))
}
