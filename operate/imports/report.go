package imports

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"regexp"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// Job is an import as commands show it.
type Job struct {
	ID        string          `json:"id"`
	Source    string          `json:"source"`
	Format    string          `json:"format"`
	Options   json.RawMessage `json:"options"`
	File      string          `json:"file"` // "sha256:" and the hash
	Name      string          `json:"name,omitempty"`
	State     string          `json:"state"` // incomplete, done
	Bytes     int64           `json:"bytes"` // of the file, up to the last row that has a result
	Rows      int64           `json:"rows"`  // that have a result
	Accepted  int64           `json:"accepted"`
	Duplicate int64           `json:"duplicate"`
	Refused   int64           `json:"refused"`
	Actor     string          `json:"actor,omitempty"`
	Created   time.Time       `json:"created"`
	Updated   time.Time       `json:"updated"`
}

// JobOf shows an import.
func JobOf(i store.Import) Job {
	return Job{
		ID: i.ID, Source: i.Source, Format: i.Format, Options: i.Options, File: i.File, Name: i.Name,
		State: string(i.State), Bytes: i.Bytes, Rows: i.Row, Accepted: i.Counts.Accepted, Duplicate: i.Counts.Duplicate, Refused: i.Counts.Refused,
		Actor: i.Actor, Created: i.Created, Updated: i.Updated,
	}
}

var jobID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ValidID reports whether a text has the form of an import's id.
func ValidID(text string) bool { return jobID.MatchString(text) }

// Refused is a line of the file of errors.
type Refused struct {
	Row    json.Number `json:"row"`
	Line   json.Number `json:"line"`
	Code   string      `json:"code"`
	Reason string      `json:"reason"`
}

// WriteErrors writes the refused rows whose dead letters are kept, in their order, as a file:
// one JSON object per line, or CSV with a header.
func WriteErrors(ctx context.Context, s store.Imports, id string, f Format, w io.Writer) error {
	const page = 1000
	buffered := bufio.NewWriter(w)
	table := csv.NewWriter(buffered)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	if f == CSV {
		if err := table.Write([]string{"row", "line", "code", "reason"}); err != nil {
			return err
		}
	}
	for after := ""; ; {
		letters, err := s.ImportLetters(ctx, id, after, page)
		if err != nil {
			return err
		}
		for _, l := range letters {
			after = l.DedupKey
			var at struct{ Row, Line json.Number }
			if err := json.Unmarshal(l.Headers, &at); err != nil {
				return err
			}
			if f == CSV {
				err = table.Write([]string{at.Row.String(), at.Line.String(), l.Code, l.Reason})
			} else {
				err = lines.Encode(Refused{at.Row, at.Line, l.Code, l.Reason})
			}
			if err != nil {
				return err
			}
		}
		if len(letters) < page {
			break
		}
	}
	table.Flush()
	if err := table.Error(); err != nil {
		return err
	}
	return buffered.Flush()
}
