package transport

import "github.com/twmb/franz-go/pkg/kgo"

// Held returns the bytes that all partitions hold, waiting and in work.
func (g *Group) Held() int64 { return g.budget.held.Load() }

// Waiting returns how many records are fetched and not handed out.
func (g *Group) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, a := range g.assignments {
		a.mu.Lock()
		n += len(a.queue)
		a.mu.Unlock()
	}
	return n
}

// With returns a configuration whose clients have more options.
func (c Config) With(more ...kgo.Opt) Config {
	c.more = more
	return c
}
