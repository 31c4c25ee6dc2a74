package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// piece is one reference in a text and its value.
type piece struct{ value, reference string }

// allowance limits the references of a customer's file, whose author need not be
// trusted with the process's variables and files.
type allowance struct {
	env     []string // names of variables, or prefixes followed by *
	folders []string
}

var allowedEnv = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)

// variable returns the fault of a reference to a variable that is not listed.
func (a *allowance) variable(name string) *mistake {
	if a == nil || slices.ContainsFunc(a.env, func(allowed string) bool {
		prefix, wild := strings.CutSuffix(allowed, "*")
		return allowed == name || wild && strings.HasPrefix(name, prefix)
	}) {
		return nil
	}
	return &mistake{problem: fmt.Sprintf("environment variable %s is not open to customers' files", name), fix: fmt.Sprintf("add %s to customers_env in the main file", name)}
}

// read returns the content of a file. A customer's file reaches only its allowed
// folders, links included.
func (a *allowance) read(path string) ([]byte, *mistake, error) {
	if a == nil {
		data, err := os.ReadFile(path)
		return data, nil, err
	}
	for _, folder := range a.folders {
		within, err := filepath.Rel(folder, path)
		if err != nil || !filepath.IsLocal(within) {
			continue
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, nil, err
		}
		defer root.Close()
		data, err := root.ReadFile(within)
		return data, nil, err
	}
	return nil, &mistake{problem: "has a reference to a file that is not open to customers' files", fix: "put the file into a folder of customers_secrets in the main file"}, nil
}

// expand replaces the references in the text of s. It returns the problems it met. A reference
// without a value stays as it is.
func (d *decoder) expand(s *scalar, secret bool) (problems []mistake) {
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
			if d.allowed != nil && !secret {
				s.unresolved = true
				b.WriteString("${" + reference + "}")
				problems = append(problems, mistake{problem: "has a reference, which a customer's file may have in secrets of its sinks only", want: "the value itself, or $${ for the characters themselves"})
				continue
			}
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
			d.doc.references[reference] = value
			s.pieces = append(s.pieces, piece{value, "${" + reference + "}"})
		default:
			b.WriteByte('$')
			rest = after
		}
	}
	s.text = b.String()
	return problems
}

// resolve returns the value of a reference, given without ${ and }. A mistake without
// a problem means that the value is unset, which is allowed.
func (d *decoder) resolve(reference string) (string, *mistake) {
	if path, isFile := strings.CutPrefix(reference, "file:"); isFile {
		if path == "" {
			return "", &mistake{problem: "has a reference that names no file", want: "${file:/path/of/secret}"}
		}
		if d.noFiles {
			return "", &mistake{}
		}
		d.doc.files["${"+reference+"}"] = d.doc.relative(path)
		data, refused, err := d.allowed.read(d.doc.relative(path))
		switch {
		case refused != nil:
			return "", refused
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
	if m := d.allowed.variable(name); m != nil {
		return "", m
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
