package ingest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// A source logs once each gap of Debezium's updates of a PostgreSQL table: that
// the row before is missing where the entity may have moved, and that a null may be a large
// value which was left alone.
func TestNoticesOfWhatAnUpdateDoesNotSay(t *testing.T) {
	cases := formatCases(t)
	for name, want := range map[string]string{
		"captured-default-move":             "format.no_row_before",
		"captured-large-values-with-schema": "format.null_may_be_unchanged",
		"captured-large-values":             "", // without a schema any null is like another
		"captured-full-move-stated":         "",
		"captured-incremental-snapshot":     "",
		"debezium-update-mysql":             "",

		"captured-flattened-full-move":                "format.no_row_before", // whatever the table logs
		"captured-flattened-large-values-with-schema": "format.null_may_be_unchanged",
		"captured-flattened-large-values":             "",
		"captured-flattened-null-in-a-snapshot":       "",
	} {
		c := cases[name]
		w := newWorldWith(t, func(o *ingest.Options) { o.Extractor = c.shape(t) })
		for range 2 {
			ev := transport.ReceivedOf(c.message(t))
			require.NoError(t, w.await(w.hand(context.Background(), frame(ev))))
		}
		require.Empty(t, w.letters, name)
		if want == "" {
			require.NotContains(t, w.log.String(), "event=format.", name)
			continue
		}
		require.Equal(t, 1, strings.Count(w.log.String(), "event=format."), name)
		require.Contains(t, w.log.String(), "event="+want+"\n", name)
	}
}

// A record that states, by its connector or by a column that may be null, that its row before
// is whole counts for every value of it, zero included.
func TestWholeRowIsBelievedWhateverItHolds(t *testing.T) {
	c := formatCases(t)["captured-default-delete"]
	for _, whole := range []bool{false, true} {
		for text, connector := range map[string]bool{`"connector":"postgresql"`: false, `"connector":"mariadb"`: true, `"connector":"sqlserver"`: true, `"connector":"oracle"`: false} {
			with := c
			with.Value = []byte(strings.Replace(string(c.Value), `"connector":"postgresql"`, text, 1))
			if whole {
				with.RowImage = "full"
			}
			record, letter := take(with.shape(t), with.message(t))
			if whole || connector {
				require.Equal(t, "delete 0\n", outcomeOf(record, letter), text)
			} else {
				require.Contains(t, outcomeOf(record, letter), "dead letter no_entity", text)
			}
		}
	}
}
