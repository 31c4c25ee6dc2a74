package config

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/stripper"
)

var hexBytes = regexp.MustCompile(`^hex:([0-9A-Fa-f]{2})+$`)

func (l *loader) checkSources() {
	if len(l.config.Sources) == 0 && l.main.has("sources") {
		l.main.faultKey("sources", "is empty", "at least one source")
	}
	for i := range l.config.Sources {
		s := &l.config.Sources[i]
		_, enveloped := s.Input.(SelfDescribing)
		c := sourceCheck{&Checker{l: l, doc: l.main, owner: s.path()}, s, enveloped}
		if s.Input != nil {
			c.kind = s.inputPath()
		}
		checkName(l.main, c.owner, s.Name)
		c.locators()
		c.format()
		if at := member(c.owner, "entity"); !enveloped && l.main.has(c.owner) && !l.main.has(at) && !l.main.bad[at] {
			l.main.faultKey(c.owner, "lacks entity", "a gjson path, header:NAME or key")
		}
		if strings.HasPrefix(s.UnavailableValue, "hex:") && !hexBytes.MatchString(s.UnavailableValue) {
			c.FaultBeside("unavailable_value", "has no bytes in hexadecimal after hex:", "an even number of digits")
		}
		c.strip()
		c.mount(l.config.Sources[:i])
		if c.HasBeside("delete_values") && s.Operation.IsZero() && s.Format == FormatJSON && !enveloped {
			c.FaultKeyBeside("delete_values", "has no effect without operation", "operation beside it")
		}
		if s.Input != nil {
			s.Input.Check(c.Checker, s)
		}
	}
}

// sourceCheck finds the faults of one source that do not depend on its kind.
type sourceCheck struct {
	*Checker
	s         *Source
	enveloped bool // its events themselves say entity, event id and operation
}

// refuse reports the mistake in the text of a value, if m is not nil.
func (c sourceCheck) refuse(at string, m *mistake) {
	if c.doc.known(at) && m != nil {
		c.doc.mistake(c.doc.at(at), at, *m)
	}
}

// divideSources puts the parts of a source in its place.
func (l *loader) divideSources() {
	var all Sources
	for _, s := range l.config.Sources {
		divided, ok := s.Input.(Divided)
		path := s.path()
		if !ok {
			all = append(all, s)
			continue
		}
		for _, m := range l.kinds.membersOf(reflect.TypeFor[Source]()) {
			if at := member(path, m.name); m.tag.Get("oneof") == "" && l.main.has(at) {
				l.main.faultKey(at, "is a matter of each part of the source", "the key in "+s.Input.Kind())
			}
		}
		parts := divided.Divide(&s)
		if len(parts) == 0 {
			all = append(all, s)
		}
		for _, p := range parts {
			p.inputAt = s.inputPath()
			p.at = Key(p.inputAt, p.Path...)
			p.Pos = l.main.at(p.at)
			if slices.ContainsFunc(all, func(o Source) bool { return o.Name == p.Name }) {
				l.main.faultKey(p.at, "is source "+p.Name+", and another one is, too", "another name in source")
			}
			all = append(all, p.Source)
		}
	}
	l.config.Sources = all
}

// clusterOf returns a name for a cluster. The name of the main one is empty.
func clusterOf(c *Cluster) string {
	brokers := slices.Sorted(slices.Values(c.Brokers))
	if len(brokers) == 0 {
		return ""
	}
	return brokers[0]
}

// locators refuses places that a source's events do not have.
func (c sourceCheck) locators() {
	for _, at := range []struct {
		key           string
		locator       Locator
		header, byKey bool
	}{
		{"entity", c.s.Entity, true, true},
		{"event_id", c.s.EventID, true, false},
		{"payload", c.s.Payload, false, false},
		{"operation", c.s.Operation, true, false},
		{"sequence", c.s.Sequence, true, false},
	} {
		c.refuse(member(c.owner, at.key), checkNotation(at.locator.Path))
		switch {
		case at.locator.Key && !at.byKey:
			c.FaultBeside(at.key, "cannot be the record's key", `a gjson path; a member of that name is written \key`)
		case at.locator.Header != "" && !at.header:
			c.FaultBeside(at.key, "cannot be a header", "a gjson path")
		}
	}
	if c.s.Input != nil {
		c.s.Input.CheckLocators(c.Checker, c.s)
	}
}

// format refuses keys for which an envelope or the format leaves no use.
func (c sourceCheck) format() {
	s := c.s
	flattened := s.Format == FormatJSON && !c.enveloped && !s.Operation.IsZero()
	for _, key := range []string{"row_image", "unchanged_as_null"} {
		switch {
		case !c.HasBeside(key):
		case s.Format != FormatDebezium && !flattened:
			c.FaultKeyBeside(key, "has no effect here", "format: debezium, or the operation of a topic that Debezium flattened")
		case key == "unchanged_as_null" && s.RowImage != "":
			c.FaultKeyBeside(key, "has no effect beside row_image: full, with which every null is one", "one of the two")
		}
	}
	if c.enveloped || s.Format == FormatJSON || !c.KnownBeside("format") {
		return
	}
	for _, key := range []string{"payload", "operation", "delete_values"} {
		if c.HasBeside(key) {
			c.FaultKeyBeside(key, "is what an event of format "+s.Format+" says by itself", "none of it beside format")
		}
	}
	if s.Mode == Patch {
		c.FaultBeside("mode", "would keep columns of format "+s.Format+" that a row has no more: its events carry whole rows", "replace")
	}
}

// strip reports the faults that package stripper finds in the patterns.
func (c sourceCheck) strip() {
	for i, pattern := range c.s.Strip {
		m := checkNotation(pattern)
		if m != nil {
			m.fix = strings.ReplaceAll(m.fix, ".#", ".*")
		}
		c.refuse(element(member(c.owner, "strip"), i), m)
	}
	_, err := stripper.Compile(c.s.Strip)
	var bad *stripper.CompileError
	if !errors.As(err, &bad) {
		return
	}
	for _, f := range bad.Faults {
		c.refuse(element(member(c.owner, "strip"), f.Index), &mistake{problem: f.Msg, fix: f.Want})
	}
}

// mount checks the place of a source's document, and that it is not inside that of an earlier
// source, nor around it.
func (c sourceCheck) mount(earlier Sources) {
	if !c.KnownBeside("mount") {
		return
	}
	if m := checkNotation(c.s.Mount); m != nil {
		c.refuse(member(c.owner, "mount"), m)
		return
	}
	mount := c.s.MountPath()
	// The value of a variable need not be UTF-8, as the file is.
	if len(mount) == 0 || slices.Contains(mount, "") || !utf8.ValidString(c.s.Mount) {
		c.FaultBeside("mount", "has an empty part", `names of members, like "lab" or "lab.results"`)
		return
	}
	for i := range earlier {
		if m := earlier[i].MountPath(); len(m) > 0 && (begins(m, mount) || begins(mount, m)) {
			c.FaultBeside("mount", "is the place of source "+earlier[i].Name+", or inside it", "a place of its own, or none for both to merge at the root")
			return
		}
	}
}

// begins reports whether path begins with prefix.
func begins(path, prefix canonicaltree.Path) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}
