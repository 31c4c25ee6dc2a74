package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// I11: the database itself keeps the imports of tenants apart, and their files
// from all of them. The role is that of production: the pipeline's own calls
// must get by with what the policies let them see.
func TestImportsOfTenantsStayApart(t *testing.T) {
	s, _ := ledger(t)
	for _, tenant := range []string{"acme", "globex", "globex"} {
		i, err := s.CreateImport(t.Context(), store.Import{Tenant: tenant, Source: "lab-" + tenant, Format: "jsonl"}, 0)
		require.NoError(t, err)
		require.NoError(t, s.AddImportChunk(t.Context(), i.ID, 0, 1, []byte("x"), 0))
		_, err = s.SealImport(t.Context(), i, i.ID[:])
		require.NoError(t, err)
	}
	for range 2 { // one per source
		i, err := s.TakeImport(t.Context(), time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.StepImport(t.Context(), store.ImportStep{
			ID: i.ID, Attempt: i.Attempt, Row: 1, State: store.ImportRunning, Lease: time.Hour,
			Rows: []store.ImportRow{{Row: 1, Line: 1, Status: "invalid"}},
		}))
	}
	for _, c := range []struct {
		setting, value           string
		imports, chunks, results int64
	}{
		{"weir.tenant", "acme", 1, 0, 1}, {"weir.tenant", "globex", 2, 0, 1}, {"weir.tenant", "nobody", 0, 0, 0}, {"weir.tenant", "", 0, 0, 0},
		{"weir.pipeline", "off", 0, 0, 0}, {"weir.pipeline", "on", 3, 3, 2},
	} {
		for statement, want := range map[string]int64{
			"SELECT FROM imports": c.imports, "UPDATE imports SET name = name": c.imports,
			"SELECT FROM import_chunks": c.chunks, "UPDATE import_chunks SET n = n": c.chunks,
			"SELECT FROM import_results": c.results, "UPDATE import_results SET last_row = last_row": c.results,
		} {
			require.Equal(t, want, runAs(t, s, c.setting, c.value, statement), "%s as %s %q", statement, c.setting, c.value)
		}
	}
	err := s.asTenant(t.Context(), "test", "acme", func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE imports SET tenant = 'globex'")
		return err
	})
	require.ErrorContains(t, err, "row-level security", "nobody can give a row away")
}
