package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/seed-86dfc502/weir/change"
)

// missing is what an operator was told: that a service may lack changes of a
// partition, of versions from up to, not including, to.
type missing struct {
	service   string
	partition int64
	from, to  change.Version
}

// journal is where the product logs. It counts what happens to services and
// remembers which gaps were told of.
type journal struct {
	w     *world
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || j.w.traced
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{w: j.w, attrs: append(j.attrs[:len(j.attrs):len(j.attrs)], attrs...)}
}

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(string) slog.Handler { return j }

// Handle implements slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	event := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			event = a.Value.String()
		}
		return event == ""
	})
	switch event {
	case "delivery.caught_up":
		j.w.count("caught up")
	case "delivery.lagging":
		j.w.count("fell behind")
	case "delivery.lost":
		j.gone(r)
	}
	if j.w.traced {
		text := []string{r.Message}
		tell := func(a slog.Attr) bool { text = append(text, a.String()); return true }
		for _, a := range j.attrs {
			tell(a)
		}
		r.Attrs(tell)
		j.w.note("%v: %s", r.Level, strings.Join(text, " "))
	}
	return nil
}

func (j *journal) gone(r slog.Record) {
	j.w.count("gap")
	if r.Level < slog.LevelError {
		return // of state customers, which get the newest all the same
	}
	var m missing
	note := func(a slog.Attr) bool {
		switch a.Key {
		case "service":
			m.service = a.Value.String()
		case "partition":
			m.partition = a.Value.Int64()
		case "from":
			m.from = version(a.Value.String())
		case "to":
			m.to = version(a.Value.String())
		}
		return true
	}
	for _, a := range j.attrs {
		note(a)
	}
	r.Attrs(note)
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.w.gaps = append(j.w.gaps, m)
}

// version reads what change.Version.String says.
func version(text string) change.Version {
	var generation uint16
	var offset int64
	if _, err := fmt.Sscanf(text, "%d:%d", &generation, &offset); err != nil {
		panic(err)
	}
	if generation == 0 {
		return 0 // before the first
	}
	return change.NewVersion(generation, offset)
}

// told reports whether an operator knows that a service may lack a change.
func (w *world) told(service, entity string, v uint64) bool {
	part := int64(w.inbox.partitionOf([]byte(entity)))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.gaps {
		if m.service == service && m.partition == part && uint64(m.from) <= v && v < uint64(m.to) {
			return true
		}
	}
	return false
}
