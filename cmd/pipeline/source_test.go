package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// weir source prepare prints the missing statements, executes them, and then has none left; --again
// makes a new slot.
func TestSourcePrepare(t *testing.T) {
	url := servers.StartOwn(t, "postgres").Address
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "CREATE TABLE orders (id int PRIMARY KEY)")
	require.NoError(t, err)
	folder := t.TempDir()
	file := filepath.Join(folder, "weir.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "acme.yaml"), []byte("customer: acme\nprojections: {order: {fields: {id: id}, deliver: {log: {file: {path: out.jsonl}}}}}\n"), 0o644))
	main := "sources: {shop: {postgres: {url: %q, tables: {public.%s: {entity: id}}}}}\ncustomers: [acme.yaml]\n"
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, main, url, "orders"), 0o644))
	slots := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'weir_shop' AND plugin = 'pgoutput'").Scan(&n))
		return n
	}
	const missing = `CREATE PUBLICATION "weir_shop" WITH (publish_via_partition_root = true);
ALTER PUBLICATION "weir_shop" ADD TABLE "public"."orders";
SELECT pg_create_logical_replication_slot('weir_shop', 'pgoutput');
`
	for range 2 {
		status, out, errs := call(t, "source", "prepare", "-c", file, "--sql")
		require.Zero(t, status, errs)
		require.Equal(t, missing, out)
	}
	require.Zero(t, slots(), "printed only")
	status, out, errs := call(t, "source", "prepare", "-c", file, "shop")
	require.Zero(t, status, errs)
	require.Equal(t, missing, out)
	require.Equal(t, 1, slots())
	status, out, errs = call(t, "source", "prepare", "-c", file)
	require.Zero(t, status)
	require.Empty(t, out)
	require.Contains(t, errs, "source shop is prepared")
	status, out, errs = call(t, "source", "prepare", "-c", file, "--again", "--json")
	require.Zero(t, status, errs)
	var all []prepared
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Equal(t, []prepared{{"shop", "weir_shop", []string{"SELECT pg_drop_replication_slot('weir_shop')", "SELECT pg_create_logical_replication_slot('weir_shop', 'pgoutput')"}}}, all)
	status, _, errs = call(t, "source", "prepare", "-c", file, "till")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "the configuration has: shop")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, main, url, "lines"), 0o644))
	status, _, errs = call(t, "source", "prepare", "-c", file)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "there is no table public.lines")
}
