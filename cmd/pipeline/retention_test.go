package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// Months whose keys are all over their time go, others stay; a dry run only
// says so.
func TestRetentionDropsMonthsThatAreOver(t *testing.T) {
	dir, main := banana(t)
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	status, out, errs := call(t, "retention", "-c", main)
	require.Zero(t, status, errs)
	require.Equal(t, "no idempotency keys\n", out)

	cfg, err := assemble.Load(main, func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	claim := func(key string) {
		s, err := assemble.OpenStore(t.Context(), cfg, logger(cfg, t.Output()))
		require.NoError(t, err)
		_, err = s.BeginClaims(t.Context(), "acme", []store.ClaimRequest{{Key: key}}, time.Minute, time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	claim("old")
	now := age(t, filepath.Join(dir, "data", "state.db"), "2020_01")
	claim("new")

	type month struct {
		Month string
		Keys  int
		Over  bool
	}
	retention := func(flags ...string) (r struct {
		DryRun  bool `json:"dry_run"`
		Dropped int
		Months  []month
	}) {
		status, out, errs := call(t, append([]string{"retention", "-c", main, "--json"}, flags...)...)
		require.Zero(t, status, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &r), out)
		return r
	}
	both := []month{{"2020-01", 1, true}, {now, 1, false}}
	dry := retention("--dry-run")
	require.True(t, dry.DryRun)
	require.Equal(t, 1, dry.Dropped)
	require.Equal(t, both, dry.Months)
	status, out, errs = call(t, "retention", "-c", main, "--dry-run")
	require.Zero(t, status, errs)
	require.Equal(t, "MONTH KEYS FATE 2020-01 1 would be dropped "+now+" 1 kept", strings.Join(strings.Fields(out), " "))
	real := retention()
	require.Equal(t, 1, real.Dropped)
	require.Equal(t, both, real.Months)
	again := retention()
	require.Zero(t, again.Dropped)
	require.Equal(t, both[1:], again.Months)
	_, out, _ = call(t, "audit", "-c", main)
	require.Equal(t, 1, strings.Count(out, `{"months":["2020-01"]}`), "what was dropped is on record, once")
}

// age makes the ledger's only month another one, and returns which it was.
func age(t *testing.T, file, to string) (was string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, db.QueryRowContext(ctx, `SELECT month FROM ledger_months`).Scan(&was))
	for _, statement := range []string{
		`ALTER TABLE ledger_` + was + ` RENAME TO ledger_` + to, `ALTER TABLE decided_` + was + ` RENAME TO decided_` + to,
		`DROP INDEX ledger_` + was + `_in_progress`, `DROP INDEX decided_` + was + `_use`, `UPDATE ledger_months SET month = '` + to + `'`,
		`VACUUM`, // what is written past the store has no checksums
	} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	return strings.ReplaceAll(was, "_", "-")
}
