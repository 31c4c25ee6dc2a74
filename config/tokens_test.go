package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/config"
)

const goodTokens = `# who may use the API
tokens:
  - id: k1
    hash: "sha256:0000000000000000000000000000000000000000000000000000000000000001"
    tenant: acme
    may: [ingest, check]
    sources: [orders, "*"]
    not_before: 2026-01-31T00:00:00Z
    expires: "2027-01-31T00:00:00+02:00"
  - {id: k2, hash: "sha256:0000000000000000000000000000000000000000000000000000000000000002", tenant: beta, may: [check]}
`

const wrongTokens = `tokens:
  - id: K_1
    hash: "sha256:00"
    tenant: "Ä"
    may: [sing, ingest]
    sources: []
    expires: tomorrow
    secret: weir_k1_hunter2
  - id: k1
    hash: "sha256:0000000000000000000000000000000000000000000000000000000000000001"
    tenant: ${TENANT:-acme}
    may: [check]
    sources: [orders]
  - id: k1
    hash: "sha256:0000000000000000000000000000000000000000000000000000000000000001"
    tenant: acme
    may: [ingest]
    sources: [orders, nosuch, "N O"]
    not_before: 2027-01-31T00:00:00Z
    expires: 2026-01-31T00:00:00Z
  - may: check
  - ${file:/etc/passwd}
`

func writeTokens(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestLoadTokens(t *testing.T) {
	f, err := config.LoadTokens(writeTokens(t, goodTokens), []string{"orders"})
	require.NoError(t, err)
	require.Len(t, f.Tokens, 2)
	k1 := f.Tokens[0]
	require.Equal(t, []string{"orders", "*"}, k1.Sources)
	require.True(t, time.Time(k1.NotBefore).Equal(time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)))
	require.True(t, time.Time(k1.Expires).Equal(time.Date(2027, 1, 30, 22, 0, 0, 0, time.UTC)))
	require.True(t, time.Time(f.Tokens[1].Expires).IsZero())
	f, err = config.LoadTokens(writeTokens(t, "tokens: []\n"), nil)
	require.NoError(t, err)
	require.Empty(t, f.Tokens)
}

func TestTokensFaults(t *testing.T) {
	_, err := config.LoadTokens(writeTokens(t, wrongTokens), []string{"orders"})
	var faults *config.Faults
	require.ErrorAs(t, err, &faults)
	var found []string
	for _, f := range faults.List {
		found = append(found, strings.ReplaceAll(f.String(), f.File+":", ""))
	}
	require.Equal(t, strings.Split(strings.TrimSpace(wrongTokensFaults), "\n"), found)
	require.NotContains(t, err.Error(), "hunter2", "the value of a key that has no meaning may be a secret")

	for text, problem := range map[string]string{
		"":                       "is empty",
		"other: x\n":             "unknown key",
		"[]":                     "is a list",
		"tokens:\n  - [a]\n":     "is a list",
		"tokens: {a: b}\n":       "is a mapping",
		"{}":                     "lacks tokens",
		"tokens:\n- &a {id: x}":  "anchors",
		"tokens: [{id: 1}]":      "is not text",
		"tokens: []\ntokens: []": "already set",
	} {
		_, err := config.ParseTokens([]byte(text))
		require.ErrorContains(t, err, problem, text)
	}
	_, err = config.LoadTokens(filepath.Join(t.TempDir(), "none.yaml"), nil)
	require.ErrorAs(t, err, &faults)
}

const wrongTokensFaults = `
2:5: tokens[0]: lacks sources; want names of sources, or ["*"] for all
2:9: tokens[0].id: is not a usable id: value "K_1"; want 1 to 63 of a-z, 0-9 and -
3:11: tokens[0].hash: is not a hash: value "***"; want "sha256:" and 64 hexadecimal digits, as weir token new prints it
4:13: tokens[0].tenant: is not a usable name: value "Ä"; want 1 to 63 of a-z, 0-9, - and _, the first a letter or digit
5:11: tokens[0].may[0]: is not allowed: value "sing"; want ingest or check
7:14: tokens[0].expires: is not a time: value "tomorrow"; want a time of RFC 3339, like "2027-01-31T00:00:00Z"
8:5: tokens[0].secret: unknown key; want one of id, hash, tenant, may, sources, not_before, expires
11:13: tokens[1].tenant: is a reference: value "${TENANT:-acme}"; want the text itself
13:5: tokens[1].sources: has no effect without ingest; want no sources, or ingest in may
14:9: tokens[2].id: is the id of tokens[1] (9:9) too: value "k1"; want an id of its own
18:23: tokens[2].sources[1]: is not a source: value "nosuch"; want one of [orders], or "*"
18:31: tokens[2].sources[2]: is not a usable name: value "N O"; want 1 to 63 of a-z, 0-9, - and _, the first a letter or digit
20:14: tokens[2].expires: is not after not_before: value "2026-01-31T00:00:00Z"; want a later time
21:5: tokens[3]: lacks hash; want text
21:5: tokens[3]: lacks id; want text
21:5: tokens[3]: lacks tenant; want text
21:10: tokens[3].may: is text; want a list, like [a, b]
22:5: tokens[4]: is text; want a mapping
`

// A file of tokens without a fault is one that a keyring can be made of.
func FuzzTokensFile(f *testing.F) {
	f.Add([]byte(goodTokens))
	f.Add([]byte(wrongTokens))
	f.Add([]byte("tokens: [{id: a, hash: ${file:/etc/passwd}, tenant: t, may: [check]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := config.ParseTokens(text)
		if err != nil {
			return
		}
		ids := map[string]bool{}
		for _, token := range file.Tokens {
			require.Regexp(t, `^[a-z0-9-]{1,63}$`, token.ID)
			require.False(t, ids[token.ID])
			ids[token.ID] = true
			require.Regexp(t, `^sha256:[0-9a-f]{64}$`, token.Hash.Reveal())
			require.NotEmpty(t, token.Tenant)
			require.NotEmpty(t, token.May)
			require.NotContains(t, token.Tenant+strings.Join(token.Sources, ""), "$")
		}
	})
}
