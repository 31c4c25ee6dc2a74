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
	c := &l.config
	if len(c.Sources) == 0 && l.main.has("sources") {
		l.main.faultKey("sources", "is empty", "at least one source")
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		path := s.path()
		l.checkName(l.main, path, s.Name)
		l.checkLocators(s, path)
		_, enveloped := s.Input.(SelfDescribing)
		l.checkFormat(s, path)
		if at := member(path, "entity"); !enveloped && l.main.has(path) && !l.main.has(at) && !l.main.bad[at] {
			l.main.faultKey(path, "lacks entity", "a gjson path, header:NAME or key")
		}
		if p := member(path, "unavailable_value"); strings.HasPrefix(s.UnavailableValue, "hex:") && !hexBytes.MatchString(s.UnavailableValue) {
			l.main.fault(p, "has no bytes in hexadecimal after hex:", "an even number of digits")
		}
		l.checkStrip(s, path)
		l.checkMount(i, path)
		if l.main.has(member(path, "delete_values")) && s.Operation.IsZero() && s.Format == FormatJSON && !enveloped {
			l.main.faultKey(member(path, "delete_values"), "has no effect without operation", "operation beside it")
		}
		if s.Input != nil {
			s.Input.Check(l.inputChecker(s, path), s)
		}
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

// inputChecker returns the Checker of a source's input. path is the path of s.
func (l *loader) inputChecker(s *Source, path string) *Checker {
	return &Checker{l: l, doc: l.main, owner: path, kind: s.inputPath()}
}

// clusterOf returns a name for a cluster. The name of the main one is empty.
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
		case at.locator.Header != "" && !at.header:
			l.main.fault(p, "cannot be a header", "a gjson path")
		}
	}
	if s.Input != nil {
		s.Input.CheckLocators(l.inputChecker(s, path), s)
	}
}

// checkFormat refuses keys for which an envelope or the format leaves no use.
func (l *loader) checkFormat(s *Source, path string) {
	_, enveloped := s.Input.(SelfDescribing)
	flattened := s.Format == FormatJSON && !enveloped && !s.Operation.IsZero()
	if p := member(path, "row_image"); l.main.has(p) && s.Format != FormatDebezium && !flattened {
		l.main.faultKey(p, "has no effect here", "format: debezium, or the operation of a topic that Debezium flattened")
	}
	switch p := member(path, "unchanged_as_null"); {
	case !l.main.has(p):
	case s.Format != FormatDebezium && !flattened:
		l.main.faultKey(p, "has no effect here", "format: debezium, or the operation of a topic that Debezium flattened")
	case s.RowImage != "":
		l.main.faultKey(p, "has no effect beside row_image: full, with which every null is one", "one of the two")
	}
	if enveloped || s.Format == FormatJSON || !l.main.known(member(path, "format")) {
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

// checkStrip reports the faults that package stripper finds in the patterns.
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
	// The value of a variable need not be UTF-8, as the file is.
	if len(mount) == 0 || slices.Contains(mount, "") || !utf8.ValidString(s.Mount) {
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
