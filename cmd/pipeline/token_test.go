package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const tokensMain = "sources:\n  orders: {http: {}, entity: id, event_id: event}\ncustomers: [acme.yaml]\napi: {tokens: tokens.yaml}\n"

func tokensProject(t *testing.T) (dir, main, file string) {
	t.Helper()
	dir = t.TempDir()
	main, file = filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "tokens.yaml")
	require.NoError(t, os.WriteFile(main, []byte(tokensMain), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte("customer: acme\nchecks: {crm: {}}\n"), 0o600))
	return dir, main, file
}

// What token new prints lets its holder in, and only as far as it says.
func TestTokenNew(t *testing.T) {
	_, main, file := tokensProject(t)
	status, out, errs := call(t, "token", "new", "--tenant", "acme", "--may", "ingest,check", "--source", "orders", "--expires", "1d", "--file", file)
	require.Zero(t, status, errs)
	token := strings.TrimSpace(out)
	status, out, errs = call(t, "token", "new", "--tenant", "other", "--may", "check", "--file", file, "--json")
	require.Zero(t, status, errs)
	var made struct {
		Token string
		Entry struct{ ID, Hash string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	require.Equal(t, auth.HashOf(made.Token).String(), made.Entry.Hash)

	k, err := auth.Open(auth.Options{File: file})
	require.NoError(t, err)
	for _, text := range []string{token, made.Token} {
		r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + text}}}
		who, err := k.Authenticate(r)
		require.NoError(t, err)
		require.Equal(t, text == token, who.May(auth.Ingest, "orders"))
		require.Equal(t, text == token, who.May(auth.Check, "acme/crm@check"))
	}
	held, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(held), token)

	status, _, errs = call(t, "validate", "-c", main)
	require.Zero(t, status, errs)
	require.Equal(t, "warning: tokens that never expire: "+made.Entry.ID+"\n", errs)

	status, out, _ = call(t, "token", "new", "--tenant", "acme", "--may", "check")
	require.Zero(t, status)
	text, entry, _ := strings.Cut(out, "\n")
	_, ok := auth.ParseToken(text)
	require.True(t, ok, out)
	require.NoError(t, os.WriteFile(file, []byte(entry), 0o600))
	status, _, errs = call(t, "validate", "-c", main)
	require.Zero(t, status, errs)
}

// Two operators who make tokens at once both get one that lets its holder in.
func TestTokensThatAreMadeAtOnce(t *testing.T) {
	const many = 20
	_, _, file := tokensProject(t)
	var g errgroup.Group
	for i := range many {
		g.Go(func() error {
			return addToken(file, fmt.Sprintf("  - {id: t%d, hash: \"sha256:%064x\", tenant: acme, may: [check]}\n", i, i))
		})
	}
	require.NoError(t, g.Wait())
	found, err := config.LoadTokens(file, nil)
	require.NoError(t, err)
	require.Len(t, found.Tokens, many)
}

func TestTokenRefuses(t *testing.T) {
	dir, main, file := tokensProject(t)
	for want, args := range map[string][]string{
		"--tenant and --may are needed": {"new", "--tenant", "acme"},
		"tenant is not a usable name":   {"new", "--tenant", "A", "--may", "check"},
		"may[0] is not allowed":         {"new", "--tenant", "a", "--may", "sing"},
		"lacks sources":                 {"new", "--tenant", "a", "--may", "ingest"},
		"is not a duration":             {"new", "--tenant", "a", "--may", "check", "--expires", "soon"},
	} {
		status, out, errs := call(t, append([]string{"token"}, args...)...)
		require.Equal(t, exitUsage, status, want)
		require.Contains(t, errs, want)
		require.Empty(t, out)
	}
	require.NoFileExists(t, file)

	// An invalid file is not changed, and no token is made.
	for _, text := range []string{"tokens:\n  - id: X\n", "tokens: []\n"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		status, out, _ := call(t, "token", "new", "--tenant", "a", "--may", "check", "--file", file)
		require.NotZero(t, status)
		require.Empty(t, out)
		held, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(held))
	}
	require.NoError(t, os.WriteFile(file, []byte("tokens:\n"+strings.Join([]string{
		"  - id: a", `    hash: "sha256:` + strings.Repeat("0", 64) + `"`, "    tenant: acme", "    may: [ingest]", "    sources: [nosuch]",
	}, "\n")), 0o600))
	status, _, errs := call(t, "validate", "-c", main)
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "tokens.yaml:6:15: tokens[0].sources[0]: is not a source")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3, "nothing is left behind")
}
