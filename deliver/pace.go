package deliver

import (
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
)

// Pace holds the changes of a service back on purpose. The zero value holds nothing back.
type Pace struct {
	// Rate is the attempts at changes per second, over all processes. 0 means no limit. Burst is
	// how many follow at once after a pause.
	Rate  float64
	Burst int
	// Settle is how long an entity must be quiet before it is sent; it is sent at the latest
	// SettleMax after the first of its unsent changes. 0 means at once. A sinks.Recoverer does
	// not support it: its bookmark passes changes in their order.
	Settle, SettleMax time.Duration
}

// pace returns the pace of the service for core. holds says that the sink is a sinks.Recoverer.
func (w *worker) pace(holds bool) core.Pace {
	own := w.opt.Pace
	p := core.Pace{Linger: w.traits.Linger, Burst: own.Burst, Settle: own.Settle, SettleMax: own.SettleMax}
	if own.Rate > 0 {
		p.Every = time.Duration(float64(time.Second)/own.Rate + 1)
	}
	if holds {
		p.Settle = 0
	}
	return p
}

// notePaced shows how many changes wait for the pace.
func (w *worker) notePaced() {
	if w.opt.Pace == (Pace{}) {
		return
	}
	n := w.core.Paced()
	w.m.paced.Set(float64(n))
	w.condition.pace(n)
}

func (c *condition) pace(changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paced = changes
}
