package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

const shopTables = `
CREATE TABLE customers (id int PRIMARY KEY, city text);
CREATE TABLE orders (id int PRIMARY KEY, customer_id int REFERENCES customers, state text);
CREATE TABLE lines (order_id int REFERENCES orders, line int, sku text, PRIMARY KEY (order_id, line));
CREATE TABLE shipments (order_id int PRIMARY KEY REFERENCES orders, carrier text);
CREATE TABLE notes (text text);
INSERT INTO customers VALUES (1, 'Oslo'), (3, 'Pune');
INSERT INTO orders VALUES (1, 3, 'new'), (2, 3, 'paid');
INSERT INTO shipments VALUES (2, 'post');`

// shop starts a database with the tables of a shop and returns its URL.
func shop(t *testing.T) string {
	t.Helper()
	url := servers.StartOwn(t, "postgres").Address
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(t.Context(), shopTables)
	require.NoError(t, err)
	return url
}

// callWith is call with variables.
func callWith(t *testing.T, variables map[string]string, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e log
	a := &app{console: console{out: &o, err: &e}, env: func(name string) (string, bool) { v, ok := variables[name]; return v, ok }}
	status = a.main(t.Context(), args)
	return status, o.String(), e.String()
}

// Of a database, init writes a source that refers to a variable, never the URL; the result
// runs. Tables whose rows do not meet by an id are refused.
func TestInitOfADatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL")
	}
	url := shop(t)
	set := map[string]string{"SHOP_URL": url}
	dir := filepath.Join(t.TempDir(), "shop")
	main := filepath.Join(dir, "weir.yaml")
	status, out, errs := callWith(t, set, "init", dir, "--from", "${SHOP_URL}", "--tables", "public.orders,shipments", "--sees", "id,state,carrier=shipments.carrier")
	require.Zero(t, status, errs)
	require.Regexp(t, `ok +source shop_orders: not set up yet: weir run makes`, out)
	require.NotContains(t, out, "export")
	text, err := os.ReadFile(main)
	require.NoError(t, err)
	require.Contains(t, string(text), `url: "${SHOP_URL}"`)
	require.Contains(t, string(text), "public.shipments: {entity: order_id, mount: shipments}")
	elsewhere(t, main)
	status, _, errs = callWith(t, set, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	sent, err := os.ReadFile(filepath.Join(dir, "out", "acme.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(sent), `"doc":{"id":1,"state":"new"}`)
	require.Contains(t, string(sent), `"doc":{"id":2,"state":"paid","carrier":"post"}`)
	status, out, errs = callWith(t, set, "doctor", "-c", main)
	require.Zero(t, status, errs+out)

	// On a terminal it asks for the same, and proposes tables and columns.
	asked := filepath.Join(t.TempDir(), "asked")
	person, program := openTerminal(t)
	a := &app{console: console{in: program, err: program, out: io.Discard}, env: func(name string) (string, bool) { value, ok := set[name]; return value, ok }}
	ended := make(chan int, 1)
	go func() { ended <- a.execute(t.Context(), []string{"init", asked}) }()
	for _, step := range []struct{ asked, answer string }{
		{`http\? \[events.jsonl\] `, "${SHOP_URL}"}, {`appear in it \[public\.[a-z]+\] `, "public.orders,shipments"},
		{`commas\? \[id,customer_id,state,shipments\.`, "id,state,carrier=shipments.carrier"},
	} {
		read(t, person, step.asked)
		_, err := fmt.Fprintln(person, step.answer)
		require.NoError(t, err)
	}
	require.Zero(t, <-ended)
	again, err := os.ReadFile(filepath.Join(asked, "weir.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))

	for line, want := range map[string]string{
		"--tables orders,lines --sees id":                  "several rows may have one order_id",
		"--tables orders,customers --sees id":              "no unique foreign key to public.orders",
		"--tables notes --sees text":                       "has no primary key",
		"--tables orders,orders --sees id":                 "is there twice",
		"--tables bills --sees id":                         "there is no table bills; the database has public.customers (id; about",
		"--tables orders --sees id,cty":                    "there is no column cty; the tables have id, customer_id, state",
		"--tables orders,shipments --sees shipments.weigh": "there is no column shipments.weigh",
		"--sees id": "--tables is needed: the database has public.customers",
	} {
		other := filepath.Join(t.TempDir(), "other")
		status, _, errs := callWith(t, set, append([]string{"init", other, "--from", url}, strings.Fields(line)...)...)
		assert.Equal(t, exitUsage, status, line)
		assert.Contains(t, errs, want, line)
		assert.NoDirExists(t, other, line)
	}
}

// A URL of init is never written or printed, and of one that it cannot read nothing is made.
func TestInitWritesNoURL(t *testing.T) {
	work := t.TempDir()
	t.Chdir(work)
	for from, want := range map[string]string{
		"mysql://shop:sesame@db/shop":            "--from mysql:…: no such way in",
		"https://shop:sesame@db/shop":            "--from https:…: no such way in",
		"kafka://shop:sesame@db:9092/orders":     "below kafka.sasl",
		"postgres://shop:sesame@127.0.0.1:1/db":  "connection refused",
		"postgres://shop:sesame@127.0.0.1:x/db":  "the url of the database cannot be parsed",
		"${SHOP_URL}":                            "SHOP_URL is not set",
		"postgresql://shop:sesame@127.0.0.1:1/d": "connection refused",
	} {
		status, out, errs := call(t, "init", "--from", from, "--entity", "id", "--sees", "id")
		assert.NotZero(t, status, from)
		assert.Contains(t, errs, want, from)
		assert.NotContains(t, out+errs, "sesame", from)
	}
	entries, err := os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, entries)
}
