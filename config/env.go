package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// piece is what a reference in a text stands for.
type piece struct{ value, reference string }

// expand replaces the references in the text of s. It returns the problems it met;
// a reference without a value stays as it is.
func (d *decoder) expand(s *scalar) (problems []mistake) {
	text := s.raw
	if s.text = text; !strings.Contains(text, "$") {
		return nil
	}
	var b strings.Builder
	for rest := text; rest != ""; {
		before, after, found := strings.Cut(rest, "$")
		b.WriteString(before)
		switch {
		case !found:
			rest = ""
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			rest = after[1:]
		case strings.HasPrefix(after, "{"):
			reference, behind, closed := strings.Cut(after[1:], "}")
			if !closed {
				s.unresolved = true
				return append(problems, mistake{problem: "has a reference that does not end", want: "${NAME}, or $${ for the characters themselves"})
			}
			rest = behind
			value, m := d.resolve(reference)
			if m != nil {
				s.unresolved = true
				b.WriteString("${" + reference + "}")
				if m.problem != "" {
					problems = append(problems, *m)
				}
				continue
			}
			b.WriteString(value)
			s.pieces = append(s.pieces, piece{value, "${" + reference + "}"})
		default:
			b.WriteByte('$')
			rest = after
		}
	}
	s.text = b.String()
	return problems
}

// resolve returns the value of what stands between ${ and }. A mistake without
// a problem says that it has no value, which is allowed.
func (d *decoder) resolve(reference string) (string, *mistake) {
	if path, isFile := strings.CutPrefix(reference, "file:"); isFile {
		if path == "" {
			return "", &mistake{problem: "has a reference that names no file", want: "${file:/path/of/secret}"}
		}
		if d.noFiles {
			return "", &mistake{}
		}
		data, err := os.ReadFile(d.doc.relative(path))
		switch {
		case err == nil:
			return strings.TrimRight(string(data), "\r\n"), nil
		case d.allowUnset:
			return "", &mistake{}
		}
		return "", &mistake{problem: fmt.Sprintf("the file %s cannot be read", path), want: "a readable file"}
	}
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	if !envName.MatchString(name) {
		return "", &mistake{problem: "has a reference that is not a name", want: "${NAME}, ${NAME:-default} or ${file:/path}, or $${ for the characters themselves"}
	}
	value, set := d.env(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case set:
		return value, nil
	case d.allowUnset:
		return "", &mistake{}
	}
	return "", &mistake{problem: fmt.Sprintf("environment variable %s is not set", name), fix: fmt.Sprintf("set %s, or write ${%s:-default}", name, name)}
}
