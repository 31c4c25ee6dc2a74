package config

import (
	"regexp"
)

var name = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const wantName = "lower-case letters, digits, - and _, at most 63, the first a letter or digit"

// checkName checks a name that becomes part of a topic's name.
func (l *loader) checkName(doc *document, path, n string) {
	if !name.MatchString(n) {
		doc.fault(path, "is not a usable name", wantName)
	}
}

// check looks at how the parts fit together. It runs over whatever was read, so
// that one fault does not hide the others.
func (l *loader) check() {}
