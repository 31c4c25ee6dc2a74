package imports

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// Job is an import as the API and the command show it.
type Job struct {
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Format      string          `json:"format"`
	Options     json.RawMessage `json:"options"`
	File        string          `json:"file"` // "sha256:" and the hash, or "id:" and the client's id
	Name        string          `json:"name,omitempty"`
	State       string          `json:"state"` // incomplete, done, cancelled, failed
	Failure     string          `json:"failure,omitempty"`
	Bytes       int64           `json:"bytes"` // of the file, up to the last row that has a result
	Rows        int64           `json:"rows"`  // that have a result
	Accepted    int64           `json:"accepted"`
	Duplicate   int64           `json:"duplicate"`
	Invalid     int64           `json:"invalid"`
	Conflicting int64           `json:"conflicting"`
	Actor       string          `json:"actor,omitempty"`
	Created     time.Time       `json:"created"`
	Updated     time.Time       `json:"updated"`
}

// JobOf shows an import.
func JobOf(i store.Import) Job {
	return Job{
		ID: i.ID, Source: i.Source, Format: i.Format, Options: i.Options, File: i.File, Name: i.Name,
		State: string(i.State), Failure: i.Failure, Bytes: i.Bytes, Rows: i.Counts.Rows(),
		Accepted: i.Counts.Accepted, Duplicate: i.Counts.Duplicate, Invalid: i.Counts.Invalid, Conflicting: i.Counts.Conflicting,
		Actor: i.Actor, Created: i.Created, Updated: i.Updated,
	}
}

var jobID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ValidID reports whether a text has the form of an import's id.
func ValidID(text string) bool { return jobID.MatchString(text) }

// resultPage is how many results are read at a time.
const resultPage = 5000

// WriteErrors writes the rows that were not accepted so far, in their order, as a file:
// one JSON object per line, or CSV with a header.
func WriteErrors(ctx context.Context, s store.Imports, tenant, id string, f Format, w io.Writer) error {
	buffered := bufio.NewWriter(w)
	table := csv.NewWriter(buffered)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	if f == CSV {
		if err := table.Write([]string{"row", "line", "status", "reason"}); err != nil {
			return err
		}
	}
	for after := int64(0); ; {
		page, err := s.ImportRows(ctx, tenant, id, after, resultPage)
		if err != nil {
			return err
		}
		for _, r := range page {
			if f == CSV {
				err = table.Write([]string{strconv.FormatInt(r.Row, 10), strconv.FormatInt(r.Line, 10), r.Status, r.Reason})
			} else {
				err = lines.Encode(r)
			}
			if err != nil {
				return err
			}
		}
		if len(page) < resultPage {
			break
		}
		after = page[len(page)-1].Row
	}
	table.Flush()
	if err := table.Error(); err != nil {
		return err
	}
	return buffered.Flush()
}
