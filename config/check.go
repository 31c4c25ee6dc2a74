package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const wantName = "1 to 63 of a-z, 0-9, - and _, the first a letter or digit"

// checkName checks a name that becomes part of a topic's name.
func checkName(doc *document, path, name string) {
	if _, isValue := doc.values[path]; namePattern.MatchString(name) {
		return
	} else if isValue {
		doc.fault(path, "is not a usable name", wantName)
	} else {
		doc.faultKey(path, "is not a usable name", wantName)
	}
}

// check compares the parts with one another. It runs over all that was read, so
// that one fault does not hide the others.
func (l *loader) check() {
	l.checkStore()
	l.checkGate()
	l.checkKafka()
	l.checkListeners()
	l.checkSources()
	l.checkMerge()
	for i := range l.config.Projections {
		l.checkProjection(i)
	}
	l.checkRenames()
	l.checkTargets()
	l.checkFiles()
	l.checkPlaintext()
	l.checkTenants()
}

// checkMerge reports the faults that package merge finds in the rules.
func (l *loader) checkMerge() {
	names := l.config.Sources.Names()
	list := func(key string, values []string) {
		seen := map[string]bool{}
		for i, v := range values {
			path := element(member("merge", key), i)
			switch {
			case !l.main.known(path) || l.main.bad["sources"]:
			case !slices.Contains(names, v):
				l.main.fault(path, "is not a source", "one of "+strings.Join(names, ", "))
			case seen[v]:
				l.main.fault(path, "is listed twice", "each source once")
			}
			seen[v] = true
		}
	}
	list("precedence", l.config.Merge.Precedence)
	list("required", l.config.Merge.Required)
}

// claims notes who uses something, to report the second who does.
type claims map[string]claim

type claim struct {
	who string
	at  Position
}

// take records that who uses what. It returns the first user, if there was one before.
func (c claims) take(what, who string, at Position) (first claim, taken bool) {
	if first, taken = c[what]; !taken {
		c[what] = claim{who, at}
	}
	return first, taken
}

func (c claim) String() string { return fmt.Sprintf("%s (%s)", c.who, c.at) }
