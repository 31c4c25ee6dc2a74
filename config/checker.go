package config

import "regexp"

// Checker collects the faults of a kind of source or sink. Keys are below the key of the kind,
// like "url" or "columns.weight". Those of methods that end in Beside are beside it. Of two
// faults of one value the first one counts.
type Checker struct {
	l          *loader
	doc        *document
	owner      string      // the path of the source or sink, or of the part of the main file
	kind       string      // the path of its kind, or owner
	projection *Projection // of a sink
}

// on returns the Checker of a part of the main file.
func (l *loader) on(path string) *Checker {
	return &Checker{l: l, doc: l.main, owner: path, kind: path}
}

func (c *Checker) path(key string) string {
	if key == "" {
		return c.kind
	}
	return c.kind + "." + key
}

// Key joins names of any content to a key.
func Key(key string, names ...string) string {
	for _, name := range names {
		key = member(key, name)
	}
	return key
}

// Element returns the key of an element of a list.
func Element(key string, i int) string { return element(key, i) }

// Has reports whether the file has a key.
func (c *Checker) Has(key string) bool { return c.doc.has(c.path(key)) }

// Known reports whether the file has a value whose references are resolved, so
// that it can be checked.
func (c *Checker) Known(key string) bool { return c.doc.known(c.path(key)) }

// IsValue reports whether the file has a single value there.
func (c *Checker) IsValue(key string) bool {
	_, ok := c.doc.values[c.path(key)]
	return ok
}

// Fault reports a problem with a value.
func (c *Checker) Fault(key, problem, want string) { c.doc.fault(c.path(key), problem, want) }

// FaultKey reports a problem with a key, or with the lack of one inside it.
func (c *Checker) FaultKey(key, problem, want string) { c.doc.faultKey(c.path(key), problem, want) }

// HasBeside is Has.
func (c *Checker) HasBeside(key string) bool { return c.doc.has(member(c.owner, key)) }

// KnownBeside is Known.
func (c *Checker) KnownBeside(key string) bool { return c.doc.known(member(c.owner, key)) }

// FaultBeside is Fault.
func (c *Checker) FaultBeside(key, problem, want string) {
	c.doc.fault(member(c.owner, key), problem, want)
}

// FaultKeyBeside is FaultKey.
func (c *Checker) FaultKeyBeside(key, problem, want string) {
	c.doc.faultKey(member(c.owner, key), problem, want)
}

// RefuseKeys refuses places in the keys of records, which only Kafka has.
func (c *Checker) RefuseKeys(s *Source) {
	for key, at := range s.Locators() {
		if at.Key {
			c.FaultBeside(key, "needs records with keys, which only Kafka has", `a gjson path; a member of that name is written \key`)
		}
	}
}

// Table checks the name of a table.
func (c *Checker) Table(key, table string, pattern *regexp.Regexp) {
	if c.Known(key) && table != "" && !pattern.MatchString(table) {
		c.Fault(key, "is not the name of a table", "table or schema.table")
	}
}

// CommonColumns are in every table.
func CommonColumns() []string {
	return []string{"service", "entity", "version", "is_deleted", "key", "changed_at", "synced_at"}
}

// Claim records that the source or sink uses something that only one may use. It returns an
// earlier user, and its place.
func (c *Checker) Claim(what, key string) (first string, taken bool) {
	at, taken := c.l.used.take(what, c.owner, c.doc.at(c.path(key)))
	return at.String(), taken
}

// FileTarget names a file, for Target.Name and Input.Reads.
func FileTarget(path string) string { return "file " + absolute(path) }

// TopicTarget names a topic, of its own cluster or else of the main one.
func TopicTarget(own, main *Cluster, topic string) string {
	name := clusterOf(own)
	if name == "" {
		name = clusterOf(main)
	}
	return "topic " + name + " " + topic
}

// TableTarget names a table of a database.
func TableTarget(kind string, database Secret, table string) string {
	return kind + " " + server(database) + " " + table
}

// Place returns the parts of a URL or connection string that locate its server, and none that
// could be a secret, for Sink.Identity.
func Place(secret Secret) []string { return placeOf(secret) }
