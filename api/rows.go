package api

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/seed-86dfc502/weir/api/problem"
	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Rows says what a body holds. The zero Rows is one JSON value.
type Rows struct {
	// Most bounds the rows of a batch; Split refuses what has more. It must not be
	// more than Options.MaxRows.
	Most int
	// Lines: each line is a row; otherwise they are the elements of an array.
	Lines bool
}

// room returns the values of a body, and what it needs of the budget of values.
func (r Rows) room(body []byte) (values, room int64, count int) {
	all, rows := canonicaltree.Values(body)
	if r.Lines {
		rows = bytes.Count(body, []byte("\n")) + 1
		all += rows
	}
	rows = min(rows, max(1, r.Most))
	return int64(all), max(int64(all), int64(len(body)/BytesPerValue)) + rowValues*int64(rows), rows
}

// Split returns the rows of a batch, at least one, or answers why not: 400, 413,
// 422. They are parts of body: JSON if they were elements of an array, else lines
// as they are, blank ones left out.
func (r Rows) Split(w http.ResponseWriter, body []byte) (rows [][]byte, ok bool) {
	split := r.elements
	if r.Lines {
		split = r.lines
	}
	rows, wrong := split(body)
	if wrong == nil && len(rows) == 0 {
		wrong = &problem.Problem{Status: http.StatusUnprocessableEntity, Detail: "the request has no rows"}
	}
	if wrong != nil {
		problem.Write(w, *wrong)
		return nil, false
	}
	return rows, true
}

func (r Rows) lines(body []byte) (rows [][]byte, wrong *problem.Problem) {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(rows) == r.Most {
			return nil, r.tooMany()
		}
		rows = append(rows, line)
	}
	return rows, nil
}

func (r Rows) elements(body []byte) (rows [][]byte, wrong *problem.Problem) {
	tree, err := canonicaltree.Parse(body)
	if err != nil {
		return nil, &problem.Problem{Status: http.StatusBadRequest, Detail: "the body is not JSON: " + err.Error()}
	}
	defer tree.Release() // the budget has no room for those of the rows beside it
	root := tree.Root()
	if root.Kind() != canonicaltree.Array {
		return nil, &problem.Problem{Status: http.StatusUnprocessableEntity, Detail: "the body is no JSON array"}
	}
	if root.Len() > r.Most {
		return nil, r.tooMany()
	}
	for _, n := range root.Elements() {
		rows = append(rows, n.Raw())
	}
	return rows, nil
}

func (r Rows) tooMany() *problem.Problem {
	return &problem.Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("a batch has at most %d rows", r.Most)}
}
