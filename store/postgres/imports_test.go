package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// I11: the database itself keeps the imports of tenants apart. The role is that of
// production: the policies must let the pipeline's own calls see their rows.
func TestImportsOfTenantsStayApart(t *testing.T) {
	s, _ := ledger(t)
	for n, tenant := range []string{"acme", "globex", "globex"} {
		_, err := s.BeginImport(t.Context(), store.Import{ID: string(rune('a' + n)), Tenant: tenant, Source: "lab", Format: "jsonl"})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		setting, value string
		imports        int64
	}{
		{"weir.tenant", "acme", 1}, {"weir.tenant", "globex", 2}, {"weir.tenant", "nobody", 0}, {"weir.tenant", "", 0},
		{"weir.pipeline", "off", 0}, {"weir.pipeline", "on", 3},
	} {
		for statement, want := range map[string]int64{
			"SELECT FROM imports": c.imports, "UPDATE imports SET name = name": c.imports,
		} {
			require.Equal(t, want, runAs(t, s, c.setting, c.value, statement), "%s as %s %q", statement, c.setting, c.value)
		}
	}
	err := s.inTx(t.Context(), "test", func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), sqlTenant, "acme"); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "UPDATE imports SET tenant = 'globex'")
		return err
	})
	require.ErrorContains(t, err, "row-level security", "no statement can give a row away")
}
