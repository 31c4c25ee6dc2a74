package outbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/reason"
)

// A server's own words are one line of at most 200 bytes in log, status and page.
func TestWordsOfAServerAreBounded(t *testing.T) {
	long := "\x1b[31mred\n" + strings.Repeat("no ", 10_000)
	for _, err := range []error{&pgconn.PgError{Message: long, Code: "42P01"}, &pgconn.PgError{Message: long, Code: "XX000"}, errors.New(long)} {
		got := classify(err)
		require.ErrorIs(t, got, err)
		require.LessOrEqual(t, len(strings.TrimPrefix(got.Error(), "outbox: ")), reason.Max)
		require.NotContains(t, got.Error(), "\n")
		require.NotContains(t, got.Error(), "\x1b")
	}
}
