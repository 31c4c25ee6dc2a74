package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
)

// A sink appends to its file, never to one of Weir's own, under any name.
func TestFileSinksKeepOffOwnFiles(t *testing.T) {
	t.Parallel()
	path := write(t, map[string]string{
		"weir.yaml":           "sources: {lab: {file: {path: lab.jsonl}, entity: id}}\ncustomers: [\"customers/*.yaml\"]\napi: {tokens: tokens.yaml}\nadmin: {token: \"${file:admin.token}\"}\n",
		"customers/acme.yaml": "", "tokens.yaml": "tokens: []\n", "admin.token": "0123456789abcdef\n",
		"data/state.db": "", "out/there.jsonl": "",
	})
	dir := filepath.Dir(path)
	require.NoError(t, os.Symlink(filepath.Join(dir, "data"), filepath.Join(dir, "link")))
	require.NoError(t, os.Link(filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "out/second.yaml")))
	load := func(file string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "customers/acme.yaml"), []byte("customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {file: {path: "+file+"}}}}}\n"), 0o600))
		_, err := assemble.Load(path, env)
		return err
	}
	for _, file := range []string{"../out/new.jsonl", "../out/there.jsonl", "../data/other.jsonl"} {
		require.NoError(t, load(file), file)
	}
	for file, want := range map[string]string{
		"../weir.yaml":         "customers/acme.yaml:2:66: projections.p.deliver.out.file.path: is a file of Weir itself: the main file: value \"../weir.yaml\"; want a file of the sink's own",
		"acme.yaml":            "a customer's file",
		"../data/state.db":     "the state",
		"../data/state.db-wal": "the state",
		"../link/state.db-shm": "the state",
		"../tokens.yaml":       "api.tokens",
		"../out/second.yaml":   "api.tokens",
		"../admin.token":       "${file:admin.token}",
		"../lab.jsonl":         "is what source lab",
		"/dev/null":            "is not a regular file",
		"../out":               "is not a regular file",
	} {
		require.ErrorContains(t, load(file), want, file)
	}
}

// Two names of one state file are two logs of it.
func TestTheStateHasOneName(t *testing.T) {
	t.Parallel()
	path := write(t, map[string]string{"weir.yaml": smallMain + "data_dir: .\n", "acme.yaml": smallCustomer, "state.db": ""})
	_, err := assemble.Load(path, env)
	require.NoError(t, err)
	require.NoError(t, os.Link(filepath.Join(filepath.Dir(path), "state.db"), filepath.Join(filepath.Dir(path), "other.db")))
	_, err = assemble.Load(path, env)
	require.ErrorContains(t, err, "weir.yaml:6:11: data_dir: holds a state.db that has a second name (a hard link)")
}

func TestPortsExist(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://db:99999/x", "postgres://a:5432,b:99999/x", "postgres://db:0/x", "host=db port=99999 dbname=x"} {
		path := write(t, map[string]string{"weir.yaml": smallMain + "store: {postgres: {insecure: true, url: \"" + url + "\"}}\nkafka: {brokers: [\"127.0.0.1:9092\"]}\n", "acme.yaml": smallCustomer})
		_, err := assemble.Load(path, env)
		require.ErrorContains(t, err, "store.postgres.url: has a port that is none", url)
	}
	path := write(t, map[string]string{"weir.yaml": smallMain, "acme.yaml": "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {out: {webhook: {url: \"https://acme.example:99999/\", secret: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz}}}}}\n"})
	_, err := assemble.Load(path, env)
	require.ErrorContains(t, err, "webhook.url: has a port that is none")
	for _, url := range []string{"postgres://a:5432,b:5433/x", "postgres://db/x", "host=db port=5432"} {
		path := write(t, map[string]string{"weir.yaml": smallMain + "store: {postgres: {insecure: true, url: \"" + url + "\"}}\nkafka: {brokers: [\"127.0.0.1:9092\"]}\n", "acme.yaml": smallCustomer})
		_, err := assemble.Load(path, env)
		require.NoError(t, err, url)
	}
}
