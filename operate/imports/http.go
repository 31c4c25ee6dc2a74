package imports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/seed-86dfc502/weir/store"
)

// maxBody bounds the JSON of a batch: the largest event of a source is 96 MiB.
const maxBody = 160 << 20

// ServeHTTP ingests a batch of a command, and answers with the import. The caller has checked its
// token. 422 means that a repetition is useless, 503 that the batch must be repeated.
func (d *Desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b Batch
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&b); err != nil {
		http.Error(w, "the body is no batch", http.StatusBadRequest)
		return
	}
	i, err := d.Ingest(r.Context(), b)
	switch {
	case Final(err):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(i) // to a caller that may have disconnected
	}
}

// Post returns an Ingest that sends batches to the ServeHTTP of another process.
func Post(send func(ctx context.Context, kind string, body io.Reader) (*http.Response, error)) Ingest {
	return func(ctx context.Context, b Batch) (i store.Import, err error) {
		body, err := json.Marshal(b)
		if err != nil {
			return i, err
		}
		resp, err := send(ctx, "application/json", bytes.NewReader(body))
		if err != nil {
			return i, err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return i, err
		}
		if resp.StatusCode == http.StatusOK {
			return i, json.Unmarshal(answer, &i)
		}
		err = fmt.Errorf("the process answered %s: %s", resp.Status, strings.TrimSpace(string(answer)))
		if resp.StatusCode != http.StatusServiceUnavailable {
			err = store.WithClass(err, store.Fatal)
		}
		return i, err
	}
}

// Final reports whether importing the same file again would fail again.
func Final(err error) bool {
	if bad := (*BadFile)(nil); errors.As(err, &bad) {
		return true
	}
	class := store.ClassOf(err)
	return err != nil && (class == store.Poison || class == store.Superseded || class == store.Fatal)
}
