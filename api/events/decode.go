package events

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// form is how a request holds its events.
type form int

const (
	unknown    form = iota
	one             // one JSON value
	array           // a JSON array of events
	lines           // one JSON value per line
	binary          // one CloudEvent, its attributes in headers
	structured      // one CloudEvent as JSON
	batched         // a JSON array of CloudEvents
)

// batch reports whether requests of the form hold any number of events.
func (f form) batch() bool { return f == array || f == lines || f == batched }

// formOf tells the form of a request to the route of single events, or of batches.
func formOf(h http.Header, batch bool) form {
	text := h.Get("Content-Type")
	cloud := h.Get("Ce-Specversion") != ""
	if text == "" && cloud && !batch {
		return binary
	}
	kind, params, err := mime.ParseMediaType(text)
	if err != nil || !strings.EqualFold(params["charset"], "utf-8") && params["charset"] != "" {
		return unknown
	}
	switch {
	case kind == "application/x-ndjson":
		return lines
	case kind == "application/cloudevents-batch+json":
		return batched
	case batch && kind == "application/json":
		return array
	case batch:
		return unknown
	case kind == "application/cloudevents+json":
		return structured
	case cloud && isJSON(kind):
		return binary
	case kind == "application/json":
		return one
	}
	return unknown
}

func isJSON(kind string) bool {
	return kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json")
}

var (
	errNoEvent     = errors.New("the request has no event")
	errNoJSON      = errors.New("the body is not JSON")
	errNoArray     = errors.New("the body is no JSON array of events")
	errTooManyRows = errors.New("too many rows")
)

// rowsOf splits the body of a batch into the values of at most limit rows. The
// values of an array are JSON; lines are as they are, blank ones left out. The
// values are parts of body. Its error says what is wrong with the body as a
// whole, and quotes nothing of it.
func rowsOf(f form, body []byte, limit int) (rows [][]byte, err error) {
	if f == lines {
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			if len(rows) == limit {
				return nil, errTooManyRows
			}
			rows = append(rows, line)
		}
	} else {
		tree, err := canonicaltree.Parse(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoJSON, err)
		}
		defer tree.Release()
		root := tree.Root()
		if root.Kind() != canonicaltree.Array {
			return nil, errNoArray
		}
		if root.Len() > limit {
			return nil, errTooManyRows
		}
		for _, n := range root.Elements() {
			rows = append(rows, n.Raw())
		}
	}
	if len(rows) == 0 {
		return nil, errNoEvent
	}
	return rows, nil
}
