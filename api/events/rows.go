package events

import (
	"context"
	"encoding/json"

	"github.com/seed-86dfc502/weir/internal/parallel"
	"github.com/seed-86dfc502/weir/store"
)

// Row is an event that comes from a row of a file.
type Row struct {
	Value []byte
	// Origin names the row among all of all files. It is the key of an event without an id, and
	// tells a repetition of the row from another event with its id.
	Origin string
}

// Take ingests rows of a tenant and returns their results in their order: accepted rows
// are durable. Its error, with which nothing is known of a row, says that the same rows are to
// be ingested again: ledger or inbox failed. Rows that are accepted
// already stay so then, without a second effect.
func (h *Handler) Take(ctx context.Context, tenant string, s *Source, given []Row) ([]Result, error) {
	rows := make([]*row, len(given))
	parallel.Do(len(given), func(i int) {
		r := s.prepare(given[i].Value, s.headers(nil, nil), nil, true, nil)
		if r.result.Origin = given[i].Origin; r.event != nil && r.key == "" {
			r.key = "import:" + given[i].Origin
		}
		rows[i] = r
	})
	if err := h.take(ctx, tenant, s, rows); err != nil {
		return nil, err
	}
	results := make([]Result, len(rows))
	for i, r := range rows {
		if r.lost != nil {
			return nil, r.lost
		}
		results[i] = r.result
	}
	return results, nil
}

// originOf returns the origin in a stored answer, "" for an answer of a request.
func originOf(r store.Response) string {
	var stored Result
	if json.Unmarshal(r.Body, &stored) != nil {
		return ""
	}
	return stored.Origin
}
