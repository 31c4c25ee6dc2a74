package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/seed-86dfc502/weir/api/problem"
	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Rows is the layout of a body. The zero Rows is one JSON value.
type Rows struct {
	// Most bounds the rows of a batch; Split refuses larger ones. It must not be
	// more than Options.MaxRows.
	Most int
	// Lines: each line is a row; otherwise they are the elements of an array.
	Lines bool
	// AtOnce: all rows are parsed at a time; otherwise each is released before the next.
	AtOnce bool
}

// room returns the values that are parsed at a time, and the bytes that the body becomes.
func (r Rows) room(body []byte) (values, room int64) {
	all, rows := canonicaltree.Values(body)
	if r.Lines {
		rows = bytes.Count(body, []byte("\n")) + 1
		all += rows
	}
	rows = min(rows, max(1, r.Most))
	parsed := len(body)
	if r.Most > 0 && !r.AtOnce {
		all, parsed = r.largest(body)
	}
	values = int64(all)
	return values, max(values, int64(parsed/BytesPerValue))*valueCost + rowCost*int64(rows)
}

// largest returns the most values and bytes of one row.
func (r Rows) largest(body []byte) (values, size int) {
	rows := bytes.Lines(body)
	if !r.Lines {
		rows = elements(body)
	}
	for row := range rows {
		all, _ := canonicaltree.Values(row)
		values, size = max(values, all), max(size, len(row))
	}
	return values, size
}

// elements yields the elements of a JSON array, untrimmed. Of other texts it yields
// some pieces.
func elements(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		depth, from := 0, 0
		for i := 0; i < len(body); i++ {
			switch body[i] {
			case '"':
				for i++; i < len(body) && body[i] != '"'; i++ {
					if body[i] == '\\' {
						i++
					}
				}
				continue
			case '[', '{':
				if depth++; depth == 1 {
					from = i + 1
				}
				continue
			case ',':
				if depth != 1 {
					continue
				}
			case ']', '}':
				if depth--; depth != 0 {
					continue
				}
			default:
				continue
			}
			if !yield(body[from:i]) {
				return
			}
			from = i + 1
		}
	}
}

// Split returns the rows of a batch, at least one, or answers why not: 400, 413,
// 422. They are parts of body: JSON if they were elements of an array, else lines
// as they are, blank ones left out.
func (r Rows) Split(w http.ResponseWriter, body []byte) (rows [][]byte, ok bool) {
	split := r.array
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

func (r Rows) array(body []byte) (rows [][]byte, wrong *problem.Problem) {
	if !json.Valid(body) {
		return nil, &problem.Problem{Status: http.StatusBadRequest, Detail: "the body is not JSON"}
	}
	if bytes.TrimSpace(body)[0] != '[' {
		return nil, &problem.Problem{Status: http.StatusUnprocessableEntity, Detail: "the body is no JSON array"}
	}
	for row := range elements(body) {
		if row = bytes.TrimSpace(row); len(row) == 0 { // of an empty array
			continue
		}
		if len(rows) == r.Most {
			return nil, r.tooMany()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (r Rows) tooMany() *problem.Problem {
	return &problem.Problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("a batch has at most %d rows", r.Most)}
}
