package webhook

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/stretchr/testify/require"
)

// A receipt has the status and the first bytes of any answer, and no headers; changes
// that were not sent have none.
func TestReceipts(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "hidden")
		switch body, _ := io.ReadAll(r.Body); {
		case strings.Contains(string(body), `"entity":"long"`):
			_, _ = w.Write([]byte(long))
		case strings.Contains(string(body), `"entity":"none"`):
			w.WriteHeader(http.StatusNoContent)
		case strings.Contains(string(body), `"entity":"refused"`):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte("no such banana"))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	s := newSink(t, Options{URL: url, Concurrency: 1})
	batch := []change.Change{upsert("long", 1), upsert("none", 2), upsert("refused", 3)}
	receipts := make([]sinks.Receipt, len(batch))
	before := time.Now()
	err := s.Write(sinks.WithReceipts(t.Context(), receipts), batch)
	require.Error(t, err)
	for i, want := range []sinks.Answer{{Status: 200, Body: []byte(long[:sinks.MaxAnswer])}, {Status: 204}, {Status: 422, Body: []byte("no such banana")}} {
		r := receipts[i]
		require.Equal(t, want.Status, r.Answer.Status)
		require.Equal(t, string(want.Body), string(r.Answer.Body))
		require.False(t, r.At.Before(before), "it began after the Write")
		require.Positive(t, r.Took)
	}

	halted := make([]sinks.Receipt, 2)
	require.Error(t, s.Write(sinks.WithReceipts(t.Context(), halted), []change.Change{upsert("x", 1), upsert("y", 2)}))
	sent := 0
	for _, r := range halted {
		if !r.At.IsZero() {
			sent++
			require.Equal(t, http.StatusUnauthorized, r.Answer.Status)
		}
	}
	require.Equal(t, 1, sent, "a pause halts the rest")

	away := make([]sinks.Receipt, 1)
	require.Error(t, newSink(t, Options{URL: "http://" + closed}).Write(sinks.WithReceipts(t.Context(), away), []change.Change{upsert("x", 1)}))
	require.False(t, away[0].At.IsZero())
	require.Zero(t, away[0].Answer.Status)
}
