package crash

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/stretchr/testify/require"
)

// tableMark precedes the table, which is the last part of the page.
const tableMark = "<!-- SUITE=crash make verify writes the table below -->"

// The page has a row for every point, and all its counts are zero.
func TestThePageHasEveryPoint(t *testing.T) {
	page, err := os.ReadFile("../../docs/crash-matrix.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), tableMark)
	require.True(t, ok)
	var rows []string
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			continue // what run it was
		}
		columns := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		require.Len(t, columns, 3+len(sinkNames), line)
		if !strings.Contains(columns[0], ".") {
			continue // the head
		}
		rows = append(rows, columns[0])
		for _, found := range columns[3:] {
			require.Equal(t, tally{}.String(), found, columns[0])
		}
	}
	require.Equal(t, crash.All(), rows)
}
