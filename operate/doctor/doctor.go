// Package doctor examines the surroundings of a configuration: servers with their versions,
// clocks, rights and settings, sources and targets, topics, folders and disks. It changes
// nothing. It finds faults that validate cannot, since they need a network, and faults that
// show only after a failure, such as a database that does not sync.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
)

// Options of an examination.
type Options struct {
	// Now is this machine's clock. Defaults to time.Now.
	Now func() time.Time
}

// askTimeout bounds the examination of one server.
const askTimeout = 15 * time.Second

// Examine examines everything that a configuration names, in its order, and returns a line
// for each finding: degraded is a warning, down a fault. References must have been resolved
// when the configuration was loaded.
func Examine(ctx context.Context, c *config.Config, o Options) []operate.Item {
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &examination{cfg: c, now: o.Now}
	for _, w := range c.Warnings() {
		e.add("configuration", operate.LevelDegraded, w, "change it, or leave it if it is meant so")
	}
	answers := map[string]bool{}
	for _, a := range askAll(ctx, c) {
		if answers[a.what] = a.err == nil; a.err != nil {
			e.add(a.what, operate.LevelDown, oneLine(a.err), remedy.Of(a.what, a.err))
			continue
		}
		switch {
		case a.what == "store" || a.what == "gate" || a.what == "kafka": // examined below
		case a.advice != nil && a.advice.Expected:
			e.add(a.what, operate.LevelOK, a.advice.Why, "")
		case a.advice != nil:
			e.add(a.what, operate.LevelDegraded, a.advice.Why, a.advice.Do)
		default:
			e.add(a.what, operate.LevelOK, "it answers, or is there"+map[bool]string{true: "; " + a.unchecked}[a.unchecked != ""], "")
		}
	}
	for _, server := range []struct {
		what string
		has  bool
		f    func(context.Context) error
	}{{"store", c.Store.Postgres != nil, e.postgres}, {"gate", c.Gate.Valkey != nil, e.valkey}, {"kafka", len(c.Kafka.Brokers) > 0, e.kafka}} {
		if !server.has || !answers[server.what] {
			continue
		}
		before := len(e.findings)
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		if err := server.f(ask); err != nil {
			e.add(server.what, operate.LevelDegraded, "it cannot be examined: "+oneLine(err), "grant this user the right to read its settings, or examine it by hand")
		}
		cancel()
		e.sound(server.what, before)
	}
	e.findings = append(e.findings, Rights(ctx, c, func(what string) bool { return answers[what] })...)
	e.debezium(ctx, answers)
	e.mappings(ctx, answers)
	e.tables(ctx, answers["store"])
	e.disks()
	before := len(e.findings) // a full disk has a finding of its own
	e.process()
	e.sound("this machine", before)
	return e.findings
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// examination collects findings. Not for concurrent use.
type examination struct {
	cfg      *config.Config
	now      func() time.Time
	findings []operate.Item
	facts    []string // of the examined object, for the line that says that all is well
}

func (e *examination) add(what string, level operate.Level, why, do string) {
	e.findings = append(e.findings, operate.Item{What: what, Level: level, Why: why, Do: do})
}

// fact records a fact for the line of a check without findings.
func (e *examination) fact(format string, args ...any) {
	e.facts = append(e.facts, fmt.Sprintf(format, args...))
}

// sound says that nothing was found since a place of the list, with the facts.
func (e *examination) sound(what string, before int) {
	if len(e.findings) == before && len(e.facts) > 0 {
		e.add(what, operate.LevelOK, strings.Join(e.facts, ", "), "")
	}
	e.facts = nil
}

// A smaller difference of clocks does no harm: times are shown, expire data, and measure the age
// of deliveries.
const (
	clockWarning = time.Second
	clockFault   = time.Minute
)

// clock compares a server's clock, read between before and after, with this machine's.
func (e *examination) clock(what string, server, before, after time.Time) {
	off := max(server.Sub(after), before.Sub(server), 0)
	level := operate.LevelDegraded
	switch {
	case off < clockWarning:
		e.fact("clock within %s", max(after.Sub(before), time.Millisecond).Round(time.Millisecond))
		return
	case off >= clockFault:
		level = operate.LevelDown
	}
	e.add(what, level, fmt.Sprintf("its clock and this machine's are %s apart", off.Round(time.Millisecond)),
		"let both follow NTP (chrony, systemd-timesyncd): ages, expiry of tokens and retention are reckoned by them")
}

// Faults counts the findings that are down.
func Faults(findings []operate.Item) (n int) {
	for _, f := range findings {
		if f.Level == operate.LevelDown {
			n++
		}
	}
	return n
}
