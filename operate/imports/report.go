package imports

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"regexp"
)

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
func WriteErrors(ctx context.Context, s Store, id string, f Format, w io.Writer) error {
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
	for after, last := letterKey(id, 0), letterKey(id, math.MaxInt64); ; {
		letters, err := s.LettersByKey(ctx, after, last, page)
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
