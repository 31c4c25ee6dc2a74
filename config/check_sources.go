package config

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/stripper"
)

var urlName = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9._~-]*$`)

func (l *loader) checkSources() {
	c := &l.config
	if len(c.Sources) == 0 && l.main.has("sources") {
		l.main.faultKey("sources", "is empty", "at least one source")
	}
	urls, readers := claims{}, claims{}
	for i := range c.Sources {
		s := &c.Sources[i]
		path := member("sources", s.Name)
		l.checkName(l.main, path, s.Name)
		l.checkLocators(s, path)
		l.checkFormat(s, path)
		if s.Outbox != nil {
			l.checkOutbox(s, path)
		} else if at := member(path, "entity"); l.main.has(path) && !l.main.has(at) && !l.main.bad[at] {
			l.main.faultKey(path, "lacks entity", "a gjson path, header:NAME or key")
		}
		l.checkStrip(s, path)
		l.checkMount(i, path)
		if l.main.has(member(path, "delete_values")) && s.Operation.IsZero() && s.Format == FormatJSON && s.Outbox == nil {
			l.main.faultKey(member(path, "delete_values"), "has no effect without operation", "operation beside it")
		}
		switch {
		case s.Kafka != nil:
			kafka := member(path, "kafka")
			l.checkReached(l.main, kafka, &s.Kafka.Cluster)
			checkTopic(l.main, member(kafka, "topic"), s.Kafka.Topic)
			at := l.main.at(member(kafka, "topic"))
			reader := clusterOf(&s.Kafka.Cluster) + " " + s.Kafka.Topic + " " + s.Kafka.Group
			if first, taken := readers.take(reader, path, at); taken && s.Kafka.Topic != "" {
				l.main.fault(member(kafka, "topic"), "is read by "+first.String()+" in the same group", "a group of its own")
			}
		case s.HTTP != nil:
			http := member(path, "http")
			checkToken(l.main, member(http, "token"), s.HTTP.Token)
			if l.main.known(member(http, "path")) && !urlName.MatchString(s.HTTP.Path) {
				l.main.fault(member(http, "path"), "is not a name in a URL", "letters, digits, ., _, ~ and -")
			}
			if first, taken := urls.take(s.HTTP.Path, path, l.main.at(http)); taken {
				l.main.fault(member(http, "path"), "is the path of "+first.String()+" too", "a path of its own")
			}
			// A posted event has no position, so nothing else tells an old one.
			if s.Mode == Patch && s.EventID.IsZero() && s.Sequence.IsZero() {
				l.main.fault(member(path, "mode"), "would apply a patch again that is posted again", "event_id or sequence beside it")
			}
		}
	}
}

// clusterOf gives a name for a cluster; the main one has none.
func clusterOf(c *Cluster) string {
	brokers := slices.Sorted(slices.Values(c.Brokers))
	if len(brokers) == 0 {
		return ""
	}
	return brokers[0]
}

// checkLocators refuses places that a source's events do not have.
func (l *loader) checkLocators(s *Source, path string) {
	for _, at := range []struct {
		key           string
		locator       Locator
		header, byKey bool
	}{
		{"entity", s.Entity, true, true},
		{"event_id", s.EventID, true, false},
		{"payload", s.Payload, false, false},
		{"operation", s.Operation, true, false},
		{"sequence", s.Sequence, true, false},
	} {
		p := member(path, at.key)
		if m := checkNotation(at.locator.Path); m != nil && l.main.known(p) {
			l.main.mistake(l.main.at(p), p, *m)
		}
		switch {
		case at.locator.Key && !at.byKey:
			l.main.fault(p, "cannot be the record's key", `a gjson path; a member of that name is written \key`)
		case s.Outbox != nil && (at.key == "entity" || at.key == "event_id" || at.key == "operation"):
			if l.main.has(p) {
				l.main.faultKey(p, "is a column of an outbox", "its name in outbox.columns")
			}
		case at.locator.Header != "" && s.Outbox != nil && s.Outbox.Columns.Headers == "":
			l.main.fault(p, "needs headers", "outbox.columns.headers beside it, or a gjson path")
		case at.locator.Key && s.Kafka == nil && (s.HTTP != nil || s.File != nil):
			l.main.fault(p, "needs records with keys, which only Kafka has", `a gjson path; a member of that name is written \key`)
		case at.locator.Header != "" && !at.header:
			l.main.fault(p, "cannot be a header", "a gjson path")
		case at.locator.Header != "" && s.File != nil:
			l.main.fault(p, "needs headers, which a file has not", "a gjson path")
		}
	}
}

// sqlName is a name in SQL that needs no quotes but for its case.
var sqlName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*$`)

// checkOutbox checks an outbox's address, names, and what goes together.
func (l *loader) checkOutbox(s *Source, path string) {
	o, at := s.Outbox, member(path, "outbox")
	checkDatabase(l.main, member(at, "url"), o.URL)
	if p := member(at, "table"); l.main.known(p) && o.Table != "" {
		parts := strings.Split(o.Table, ".")
		if len(parts) > 2 || slices.ContainsFunc(parts, func(part string) bool { return !sqlName.MatchString(part) }) {
			l.main.fault(p, "is not the name of a table", "schema.name, of letters, digits, _ and $")
		}
	}
	columns := member(at, "columns")
	for _, c := range []struct{ key, name string }{
		{"id", o.Columns.ID}, {"entity", o.Columns.Entity}, {"payload", o.Columns.Payload}, {"processed", o.Columns.Processed},
	} {
		if p := member(columns, c.key); l.main.known(p) && c.name == "" {
			l.main.fault(p, "is empty", "the name of a column")
		}
	}
	if s.Format != FormatJSON && l.main.known(member(path, "format")) {
		l.main.fault(member(path, "format"), "is not for an outbox, whose columns say everything", "json")
	}
	if l.main.has(member(path, "delete_values")) && o.Columns.Operation == "" {
		l.main.faultKey(member(path, "delete_values"), "has no effect without an operation column", "outbox.columns.operation beside it")
	}
}

// checkFormat refuses what an envelope already says.
func (l *loader) checkFormat(s *Source, path string) {
	if s.Format == FormatJSON || s.Outbox != nil || !l.main.known(member(path, "format")) {
		return
	}
	for _, key := range []string{"payload", "operation", "delete_values"} {
		if l.main.has(member(path, key)) {
			l.main.faultKey(member(path, key), "is what an event of format "+s.Format+" says by itself", "none of it beside format")
		}
	}
	if s.Mode == Patch {
		l.main.fault(member(path, "mode"), "would keep columns of format "+s.Format+" that a row has no more: its events carry whole rows", "replace")
	}
}

// checkStrip reports what package stripper finds in the patterns.
func (l *loader) checkStrip(s *Source, path string) {
	for i, pattern := range s.Strip {
		p := element(member(path, "strip"), i)
		if m := checkNotation(pattern); m != nil && l.main.known(p) {
			m.fix = strings.ReplaceAll(m.fix, ".#", ".*")
			l.main.mistake(l.main.at(p), p, *m)
		}
	}
	_, err := stripper.Compile(s.Strip)
	var bad *stripper.CompileError
	if !errors.As(err, &bad) {
		return
	}
	for _, f := range bad.Faults {
		if p := element(member(path, "strip"), f.Index); l.main.known(p) {
			l.main.mistake(l.main.at(p), p, mistake{problem: f.Msg, fix: f.Want})
		}
	}
}

// checkMount checks the place of a source's document, and that the places of
// two sources are not inside one another.
func (l *loader) checkMount(i int, path string) {
	s := &l.config.Sources[i]
	p := member(path, "mount")
	if !l.main.known(p) {
		return
	}
	if m := checkNotation(s.Mount); m != nil {
		l.main.mistake(l.main.at(p), p, *m)
		return
	}
	mount := s.MountPath()
	if len(mount) == 0 || slices.Contains(mount, "") {
		l.main.fault(p, "has an empty part", `names of members, like "lab" or "lab.results"`)
		return
	}
	for j := range l.config.Sources[:i] {
		other := &l.config.Sources[j]
		if m := other.MountPath(); len(m) > 0 && (begins(m, mount) || begins(mount, m)) {
			l.main.fault(p, "is the place of source "+other.Name+", or inside it", "a place of its own, or none for both to merge at the root")
			return
		}
	}
}

// begins reports whether path begins with prefix.
func begins(path, prefix canonicaltree.Path) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}
