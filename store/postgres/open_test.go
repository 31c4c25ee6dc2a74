package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// pgx takes what follows a blank or a quote in a password for the next key, and quotes it.
func TestOpenQuotesNoPartOfAMistypedURL(t *testing.T) {
	for _, url := range []string{
		"host=h user=u password=half hidden",
		"host=h password='half hidden",
		"postgres://u:half%zzhidden@h/db",
	} {
		_, err := Open(t.Context(), Options{URL: url})
		require.Error(t, err, url)
		require.Equal(t, store.Fatal, store.ClassOf(err))
		require.NotContains(t, err.Error(), "hidden")
		require.NotContains(t, err.Error(), "half")
	}
}
