//go:build verify

package recovery

import "testing"

// The same with 200,000 rows.
func TestTablesWholeUnderKills(t *testing.T) { tablesUnderKills(t, 40_000, 1200) }
