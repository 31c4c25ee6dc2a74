// Package doctor examines what a configuration stands on: servers with their versions,
// clocks, rights and settings, topics, folders and disks. It changes nothing. What
// validate cannot see, since it needs a network, and what shows itself only when it is
// too late, such as a database that does not sync, is what it looks for.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // it works, and may not under load or after a failure
	Fault   Level = "fault"   // it does not work, or promises do not hold
)

// Finding is one thing that was examined.
type Finding struct {
	What  string `json:"what"` // store, gate, kafka, source NAME, a service, or disk PATH
	Level Level  `json:"level"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // the remedy, unless all is well
}

// Options of an examination.
type Options struct {
	// Now is this machine's clock. Defaults to time.Now.
	Now func() time.Time
}

// askTimeout bounds the examination of one server.
const askTimeout = 15 * time.Second

// Examine examines everything that a configuration names, in its order. References must
// have been resolved when it was loaded.
func Examine(ctx context.Context, c *config.Config, o Options) []Finding {
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &examination{cfg: c, now: o.Now}
	for _, w := range c.Warnings() {
		e.add("configuration", Warning, w, "change it, or leave it if it is meant so")
	}
	answers := map[string]bool{}
	for _, r := range assemble.Resolve(ctx, c) {
		if answers[r.What] = r.Error == ""; r.Error != "" {
			e.add(r.What, Fault, r.Error, remedy(r.What))
		} else if kind, _, _ := strings.Cut(r.What, " "); kind != "store" && kind != "gate" && kind != "kafka" {
			e.add(r.What, OK, "it answers, or is there", "")
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
			e.add(server.what, Warning, "it cannot be examined: "+strings.Join(strings.Fields(err.Error()), " "), "give this user the right to look, or look by hand")
		}
		cancel()
		e.sound(server.what, before)
	}
	e.findings = append(e.findings, Rights(ctx, c, func(what string) bool { return answers[what] })...)
	before := len(e.findings)
	e.schema(ctx, answers["store"])
	e.disks()
	e.process()
	e.sound("this machine", before)
	return e.findings
}

// remedy is what to do where something does not answer.
func remedy(what string) string {
	switch {
	case what == "store", what == "gate", what == "kafka":
		return "start it, or correct " + what + " in the configuration: address, user, password, TLS"
	case strings.HasPrefix(what, "source "):
		return "make it, or correct what the source names"
	}
	return "bring the target back or correct its address; its changes wait, and other services go on"
}

// examination collects findings. Not for concurrent use.
type examination struct {
	cfg      *config.Config
	now      func() time.Time
	findings []Finding
	facts    []string // of what is examined, for the line that all is well
}

func (e *examination) add(what string, level Level, found, do string) {
	e.findings = append(e.findings, Finding{what, level, found, do})
}

// fact notes what is worth saying where nothing is wrong.
func (e *examination) fact(format string, args ...any) {
	e.facts = append(e.facts, fmt.Sprintf(format, args...))
}

// sound says that nothing was found since a place of the list, with the facts.
func (e *examination) sound(what string, before int) {
	if len(e.findings) == before && len(e.facts) > 0 {
		e.add(what, OK, strings.Join(e.facts, ", "), "")
	}
	e.facts = nil
}

// A clock that is off by less than this harms nobody: times are for people, retention
// and the age of deliveries.
const (
	clockWarning = time.Second
	clockFault   = time.Minute
)

// clock compares a server's clock, which was read between two looks at this machine's.
func (e *examination) clock(what string, server, before, after time.Time) {
	off := max(server.Sub(after), before.Sub(server), 0)
	level := Warning
	switch {
	case off < clockWarning:
		e.fact("clock within %s", max(after.Sub(before), time.Millisecond).Round(time.Millisecond))
		return
	case off >= clockFault:
		level = Fault
	}
	e.add(what, level, fmt.Sprintf("its clock and this machine's are %s apart", off.Round(time.Millisecond)),
		"let both follow NTP (chrony, systemd-timesyncd): ages, expiry of tokens and retention are reckoned by them")
}

// Worst returns the worst level of findings.
func Worst(findings []Finding) Level {
	worst := OK
	for _, f := range findings {
		if f.Level == Fault || f.Level == Warning && worst == OK {
			worst = f.Level
		}
	}
	return worst
}
