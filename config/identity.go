package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Identity identifies a process's effect on customers under a configuration. The
// store knows a revision by it: two processes of one identity work
// side by side, and one of another identity is fenced. The first 32 bytes are the
// Fingerprint, which decides entities; the other 32 identify the customer's
// side:
//
//   - of every sink its kind of target and its place (file, brokers, topic; of a
//     URL scheme, hosts, path and the parameters that name a database or schema),
//     its kind and mode, its columns, tombstones and retention
//   - the check services and how they compare numbers
//
// Behind them are its Prints.
//
// So another table is another identity, and evaluates no entity again. Not part of
// it are secrets (passwords, users, signing keys, headers and all other
// parameters of a URL), how a target is reached (TLS, SASL, insecure),
// tuning (retry, pace, refresh, history, timeout, concurrency, max_batch, linger) and what only matters
// when a table is made (create, partition_by). Files below the folder of the main
// file are known by their path from there, so that a configuration may be
// moved with its folder. It may be called on a Config of Load only, also concurrently.
func (c *Config) Identity() []byte {
	h := sha256.New()
	write := func(v any) { _ = json.NewEncoder(h).Encode(v) } // cannot fail, as in Fingerprint
	write([]any{"weir targets", 1})
	services := c.Services()
	slices.SortFunc(services, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range services {
		write([]any{"service", s.Name, s.Delivery.Kind})
		write(append([]any{s.Delivery.Sink.Kind()}, s.Delivery.Sink.Identity(c.portable)...))
	}
	checked := make([][]any, len(c.Checks))
	for i := range c.Checks {
		checked[i] = []any{c.Checks[i].Service(), c.Checks[i].Numbers}
	}
	slices.SortFunc(checked, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) })
	write([]any{"checks", checked})
	decisions := c.Fingerprint()
	return c.Prints().append(h.Sum(decisions[:]))
}

// DecidesLike reports whether a revision of the store, known by its identity,
// decides as this configuration does, wherever either of them sends to.
func (c *Config) DecidesLike(identity []byte) bool {
	f := c.Fingerprint()
	return bytes.HasPrefix(identity, f[:])
}

// portable returns a path from the folder of the main file, if it is below it.
func (c *Config) portable(path string) string {
	path = absolute(path)
	rel, err := filepath.Rel(filepath.Dir(absolute(c.File)), path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.ToSlash(rel)
}

// Identity lists the columns by name: their order in a file does not matter.
func (c Columns) Identity() [][4]string {
	all := make([][4]string, len(c))
	for i, column := range c {
		all[i] = [4]string{column.Name, column.Type, column.Path, column.Unit}
	}
	slices.SortFunc(all, func(a, b [4]string) int { return strings.Compare(a[0], b[0]) })
	return all
}

// Parameters of a connection string that say where, and no more.
var placing = []string{"host", "hostaddr", "port", "dbname", "database", "search_path", "options"}

// keyValue is a setting of a connection string in the form of libpq.
var keyValue = regexp.MustCompile(`(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S*)`)

// placeOf returns the parts of a URL or connection string that locate its server, and none that
// could be a secret. A text that is neither yields nothing. It parses the URL itself since the
// URL of a database may name several hosts.
func placeOf(secret Secret) (place []string) {
	text := secret.Reveal()
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		for _, m := range keyValue.FindAllStringSubmatch(text, -1) {
			if key := strings.ToLower(m[1]); slices.Contains(placing, key) {
				place = append(place, key+"="+strings.Trim(m[2], "'"))
			}
		}
		slices.Sort(place)
		return place
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	place = []string{strings.ToLower(scheme), strings.ToLower(host), path}
	if values, err := url.ParseQuery(query); err == nil {
		for _, key := range placing {
			for _, value := range values[key] {
				place = append(place, key+"="+value)
			}
		}
	}
	return place
}
