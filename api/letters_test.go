package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A source with as many open dead letters as it may have gets nothing more until some
// are resolved; others do.
func TestLettersOfASource(t *testing.T) {
	open, asked := map[string]int64{"lab": 9}, 0
	var down error
	l := NewLetters(10, func(_ context.Context, source string, most int64) (int64, error) {
		asked++
		return min(open[source], most), down
	})
	now := time.Now()
	l.now = func() time.Time { return now }
	send := func(source string) int {
		w := httptest.NewRecorder()
		if l.Admit(w, httptest.NewRequest("POST", "/", nil), source) {
			return http.StatusOK
		}
		require.Equal(t, "60", w.Header().Get("Retry-After"))
		require.Contains(t, w.Body.String(), "source lab has 10 open dead letters")
		return w.Code
	}
	require.Equal(t, http.StatusOK, send("lab"))
	open["lab"] = 12
	require.Equal(t, http.StatusOK, send("lab"), "a count is used for a while")
	require.Equal(t, 1, asked)
	now = now.Add(lettersAge)
	require.Equal(t, http.StatusTooManyRequests, send("lab"))
	require.Equal(t, http.StatusOK, send("registry"))
	open["lab"] = 3
	now = now.Add(lettersAge)
	require.Equal(t, http.StatusOK, send("lab"), "some were resolved")
	open["lab"], down = 12, errors.New("away")
	now = now.Add(lettersAge)
	require.Equal(t, http.StatusOK, send("lab"), "a store that is away is no reason to refuse")
	require.Nil(t, NewLetters(0, nil))
	require.True(t, (*Letters)(nil).Admit(nil, nil, "lab"))
}
