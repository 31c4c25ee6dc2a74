package checkhttp

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
)

// Limits beside the configured ones, in bytes.
const (
	maxEventID  = 1024
	maxSequence = 256
	maxHash     = 1024
)

// refusal is the reason why a request in JSON is refused. It quotes nothing of it.
type refusal string

func (r refusal) Error() string { return string(r) }

// malformed says that a row of a batch cannot be read.
type malformed string

func (m malformed) Error() string { return string(m) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

var (
	errForm  = errors.New("send application/json")
	errForms = errors.New("send application/json, an array, or application/x-ndjson")
)

// linesOf reports whether a request holds one JSON value per line.
func linesOf(h http.Header, batch bool) (lines bool, err error) {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	known := err == nil && (params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8"))
	switch {
	case known && kind == "application/json":
		return false, nil
	case known && batch && kind == "application/x-ndjson":
		return true, nil
	case batch:
		return false, errForms
	}
	return false, errForm
}

// row is one value of a batch, or why it is none.
type row struct {
	node canonicaltree.Node
	err  error
}

// parse returns the rows of a batch. done releases the trees of their nodes.
func parse(values [][]byte) (rows []row, done func()) {
	rows = make([]row, len(values))
	trees := make([]*canonicaltree.Tree, 0, len(values))
	for i, value := range values {
		tree, err := canonicaltree.Parse(value)
		if err != nil {
			rows[i].err = malformed("the row is not JSON: " + err.Error())
			continue
		}
		trees = append(trees, tree)
		rows[i].node = tree.Root()
	}
	return rows, func() {
		for _, t := range trees {
			t.Release()
		}
	}
}

// members hands the members of an object to those that know them.
func members(n canonicaltree.Node, known map[string]func(canonicaltree.Node) error) error {
	names := func() string { return strings.Join(slices.Sorted(maps.Keys(known)), ", ") }
	if n.Kind() != canonicaltree.Object {
		return refuse("the request is not an object with %s", names())
	}
	for name, value := range n.Members() {
		take, ok := known[name]
		if !ok {
			return refuse("the request has a member that is not known; known are %s", names())
		}
		if err := take(value); err != nil {
			return refuse("%s %v", name, err)
		}
	}
	return nil
}

// text reads a string of 1 to limit bytes.
func text(to *string, limit int) func(canonicaltree.Node) error {
	return func(n canonicaltree.Node) error {
		s, ok := n.Text()
		if !ok || s == "" || len(s) > limit || strings.IndexByte(s, 0) >= 0 {
			return refuse("is not a string of 1 to %d bytes without NUL", limit)
		}
		*to = s
		return nil
	}
}

// version reads a version that an answer gave.
func version(to *change.Version) func(canonicaltree.Node) error {
	return func(n canonicaltree.Node) error {
		v, err := strconv.ParseUint(string(n.Raw()), 10, 64)
		if n.Kind() != canonicaltree.Number || err != nil || v == 0 || v > math.MaxInt64 {
			return refuse("is not a version: a whole number above 0")
		}
		*to = change.Version(v)
		return nil
	}
}

// sequence reads a string, or a whole number of any length.
func sequence(to *string) func(canonicaltree.Node) error {
	return func(n canonicaltree.Node) error {
		if n.Kind() != canonicaltree.Number {
			return text(to, maxSequence)(n)
		}
		raw := string(n.Raw())
		if len(raw) > maxSequence || strings.Trim(raw, "0123456789") != "" {
			return refuse("is neither a string nor a whole number of at most %d digits", maxSequence)
		}
		*to = raw
		return nil
	}
}

// decoder reads requests for one service.
type decoder struct {
	numbers   canonicaltree.Numbers
	maxEntity int
}

func (d decoder) check(n canonicaltree.Node) (r checks.Request, err error) {
	var payload canonicaltree.Node
	var hash string
	err = members(n, map[string]func(canonicaltree.Node) error{
		"entity":   text(&r.Entity, d.maxEntity),
		"event_id": text(&r.EventID, maxEventID),
		"sequence": sequence(&r.Sequence),
		"hash":     text(&hash, maxHash),
		"payload": func(n canonicaltree.Node) error {
			payload = n
			return nil
		},
	})
	switch {
	case err != nil:
	case r.Entity == "":
		err = refuse("entity is missing")
	case payload.Exists() == (hash != ""):
		err = refuse("give payload or hash, one of them")
	case hash != "":
		r.Content = checks.Given(hash)
	default:
		r.Content = change.Hashed(canonicaltree.Scheme, payload.Sum(d.numbers))
	}
	return r, err
}

func (d decoder) confirm(n canonicaltree.Node) (c checks.Confirmation, err error) {
	err = members(n, map[string]func(canonicaltree.Node) error{
		"entity": text(&c.Entity, d.maxEntity), "version": version(&c.Version),
	})
	return c, missing(err, c.Entity, c.Version)
}

func (d decoder) release(n canonicaltree.Node) (f checks.Failure, err error) {
	f.Outcome = checks.Unknown
	err = members(n, map[string]func(canonicaltree.Node) error{
		"entity": text(&f.Entity, d.maxEntity), "version": version(&f.Version),
		"outcome": func(n canonicaltree.Node) error {
			s, _ := n.Text()
			if f.Outcome = checks.Outcome(s); f.Outcome != checks.Unknown && f.Outcome != checks.Refused {
				return refuse("is neither refused nor unknown")
			}
			return nil
		},
	})
	return f, missing(err, f.Entity, f.Version)
}

// missing completes the error of a request that names a version of an entity.
func missing(err error, entity string, v change.Version) error {
	switch {
	case err != nil:
		return err
	case entity == "":
		return refuse("entity is missing")
	case v == 0:
		return refuse("version is missing")
	}
	return nil
}
