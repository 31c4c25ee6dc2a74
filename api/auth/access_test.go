package auth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMay(t *testing.T) {
	acme := auth.Principal{ID: "a", Tenant: "acme", Permissions: []auth.Permission{auth.Ingest, auth.Check}, Sources: []string{"orders"}}
	all := auth.Principal{ID: "b", Tenant: "beta", Permissions: []auth.Permission{auth.Ingest}, Sources: []string{auth.AllSources}, Except: []string{"own"}}
	every := auth.Principal{Tenant: auth.DefaultTenant, Permissions: []auth.Permission{auth.Check}, AnyCustomer: true}
	for _, c := range []struct {
		who      auth.Principal
		verb     auth.Permission
		resource string
		may      bool
	}{
		{acme, auth.Any, "whatever", true},
		{acme, auth.Ingest, "", true},
		{acme, auth.Ingest, "orders", true},
		{acme, auth.Ingest, "order", false},
		{acme, auth.Ingest, "*", false},
		{acme, auth.Check, "acme/crm@check", true},
		{acme, auth.Check, "acme", false},
		{acme, auth.Check, "acme2/crm@check", false},
		{acme, auth.Check, "beta/crm@check", false},
		{acme, auth.Check, "/crm@check", false},
		{all, auth.Ingest, "orders", true},
		{all, auth.Ingest, "own", false},
		{all, auth.Check, "beta/crm@check", false},
		{every, auth.Check, "beta/crm@check", true},
		{every, auth.Check, "beta", false},
		{every, auth.Ingest, "orders", false},
		{auth.Principal{}, auth.Ingest, "orders", false},
		{auth.Principal{}, auth.Check, "/x", false},
	} {
		require.Equal(t, c.may, c.who.May(c.verb, c.resource), "%+v", c)
	}
}

func TestTokensAreParsed(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id, text := auth.NewToken()
		require.False(t, seen[text])
		seen[text] = true
		got, ok := auth.ParseToken(text)
		require.True(t, ok, text)
		require.Equal(t, id, got)
	}
	secret := strings.Repeat("A", 43)
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{"weir_k1-a_" + secret, true},
		{"weir_" + strings.Repeat("k", 63) + "_" + secret, true},
		{"weir_" + strings.Repeat("k", 64) + "_" + secret, false},
		{"weir__" + secret, false},
		{"weir_K_" + secret, false},
		{"weir_k", false},
		{"weir_k_", false},
		{"weir_k_" + secret[1:], false},
		{"weir_k_" + secret + "A", false},
		{"weir_k_" + secret[1:] + "B", false}, // bits behind the last byte
		{"weir_k_" + secret + "=", false},
		{"weir_k_" + secret + "\n", false},
		{"weir_k_\n" + secret, false},
		{"Weir_k_" + secret, false},
		{"", false},
	} {
		_, ok := auth.ParseToken(c.text)
		require.Equal(t, c.ok, ok, "%q", c.text)
	}
}

func TestBearer(t *testing.T) {
	for _, c := range []struct {
		headers []string
		token   string
		ok      bool
	}{
		{nil, "", false},
		{[]string{"Bearer abc"}, "abc", true},
		{[]string{"bEARER  abc "}, "abc", true},
		{[]string{"Bearer abc", "Bearer abc"}, "", false},
		{[]string{"Bearer abc", "Basic abc"}, "", false},
		{[]string{"Bearer"}, "", false},
		{[]string{"Bearer "}, "", false},
		{[]string{"Bearer a b"}, "", false},
		{[]string{"Basic abc"}, "", false},
		{[]string{"abc"}, "", false},
	} {
		token, ok := auth.Bearer(http.Header{"Authorization": c.headers})
		require.Equal(t, c.ok, ok, "%q", c.headers)
		if ok {
			require.Equal(t, c.token, token)
		}
	}
}

// file is a tokens file under test, with a clock.
type file struct {
	t    *testing.T
	path string
	now  time.Time
	told []error
}

func newFile(t *testing.T) *file {
	return &file{t: t, path: filepath.Join(t.TempDir(), "tokens.yaml"), now: time.Now()}
}

// write replaces the file as an editor does, by another of the same name.
func (f *file) write(text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path+".new", []byte(text), 0o644))
	require.NoError(f.t, os.Rename(f.path+".new", f.path))
	f.now = f.now.Add(5 * time.Second)
}

func (f *file) open() *auth.Keyring {
	f.t.Helper()
	k, err := auth.Open(auth.Options{
		File: f.path, Sources: map[string]string{"lab": "lab-token-0123456789", "mill": "mill-token-012345678", "yard": "lab-token-0123456789"},
		Loopback: true, Now: func() time.Time { return f.now }, Reread: func(err error) { f.told = append(f.told, err) },
	})
	require.NoError(f.t, err)
	return k
}

func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9601/v1/x", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func entry(id, text, more string) string {
	return "  - id: " + id + "\n    hash: " + auth.HashOf(text).String() + "\n    tenant: acme\n    may: [ingest]\n    sources: [orders]\n" + more
}

func TestKeyring(t *testing.T) {
	f := newFile(t)
	one, first := auth.NewToken()
	two, second := auth.NewToken()
	late, lateToken := auth.NewToken()
	_, stranger := auth.NewToken()
	f.write("tokens:\n" + entry(one, first, "") +
		entry(two, second, "    expires: "+f.now.Add(time.Hour).UTC().Format(time.RFC3339)+"\n") +
		entry(late, lateToken, "    not_before: "+f.now.Add(time.Hour).UTC().Format(time.RFC3339)+"\n"))
	k := f.open()

	who, err := k.Authenticate(request(first))
	require.NoError(t, err)
	require.Equal(t, auth.Principal{ID: one, Tenant: "acme", Permissions: []auth.Permission{auth.Ingest}, Sources: []string{"orders"}, Except: []string{"lab", "mill", "yard"}}, who)
	_, err = k.Authenticate(request(second))
	require.NoError(t, err)
	who, err = k.Authenticate(request("lab-token-0123456789"))
	require.NoError(t, err)
	require.Equal(t, "source:lab", who.Tenant, "no tenant of the file has such a name")
	mill, err := k.Authenticate(request("mill-token-012345678"))
	require.NoError(t, err)
	require.Equal(t, "source:mill", mill.Tenant)
	require.True(t, who.May(auth.Ingest, "lab") && who.May(auth.Ingest, "yard"), "two sources may share a token")
	require.False(t, who.May(auth.Ingest, "mill") || who.May(auth.Check, "default/x@check"))

	refused := func(r *http.Request) {
		t.Helper()
		who, err := k.Authenticate(r)
		require.ErrorIs(t, err, auth.ErrUnauthenticated)
		require.Zero(t, who)
	}
	refused(request(""))
	refused(request(stranger))
	refused(request(lateToken))
	refused(request("weir_" + one + "_" + strings.Repeat("A", 43)))
	refused(request(strings.Replace(second, two, one, 1))) // a secret of another id
	refused(request(first + "x"))
	refused(request(strings.Repeat("x", 1<<20)))
	double := request(first)
	double.Header.Add("Authorization", "Bearer "+first)
	refused(double)

	f.now = f.now.Add(2 * time.Hour)
	refused(request(second))
	_, err = k.Authenticate(request(lateToken))
	require.NoError(t, err)
}

// Tokens come and go while the process runs; a wrong file changes nothing.
func TestKeyringReadsAgain(t *testing.T) {
	f := newFile(t)
	one, first := auth.NewToken()
	two, second := auth.NewToken()
	good := func(token string) bool {
		_, err := f.open().Authenticate(request(token))
		return err == nil
	}
	f.write("tokens:\n" + entry(one, first, ""))
	require.True(t, good(first))
	require.False(t, good(second))

	k := f.open()
	in := func(token string) bool {
		// A second later, of the clock that files are looked at by.
		require.Eventually(t, func() bool {
			_, err := k.Authenticate(request(token))
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		return true
	}
	out := func(token string) {
		require.Eventually(t, func() bool {
			_, err := k.Authenticate(request(token))
			return err != nil
		}, time.Minute, 50*time.Millisecond)
	}
	f.write("tokens:\n" + entry(one, first, "") + entry(two, second, ""))
	require.True(t, in(second) && in(first), "both are valid while one replaces the other")
	f.write("tokens:\n" + entry(two, second, ""))
	out(first)
	require.True(t, in(second))
	f.write("tokens: []\n")
	out(second)
}

// All sources of a file are those that have no token of their own.
func TestAllSourcesDoNotOpenASourcesOwnToken(t *testing.T) {
	f := newFile(t)
	one, first := auth.NewToken()
	two, second := auth.NewToken()
	f.write("tokens:\n" + strings.Replace(entry(one, first, ""), "sources: [orders]", `sources: ["*"]`, 1) +
		strings.Replace(entry(two, second, ""), "sources: [orders]", "sources: [lab]", 1))
	k := f.open()
	who, err := k.Authenticate(request(first))
	require.NoError(t, err)
	require.True(t, who.May(auth.Ingest, "orders"))
	require.False(t, who.May(auth.Ingest, "lab"))
	who, err = k.Authenticate(request(second))
	require.NoError(t, err)
	require.True(t, who.May(auth.Ingest, "lab"), "a file may name it")
}

// A file that the configuration does not go with is a wrong one.
func TestTokensAreChecked(t *testing.T) {
	f := newFile(t)
	one, first := auth.NewToken()
	f.write("tokens:\n" + entry(one, first, ""))
	wrong := errors.New("not these")
	_, err := auth.Open(auth.Options{File: f.path, Check: func(file *config.TokensFile) error {
		require.Len(t, file.Tokens, 1)
		return wrong
	}})
	require.ErrorIs(t, err, wrong)
}

func TestKeyringRefusesAWrongFileAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	_, err := auth.Open(auth.Options{File: path})
	var faults *config.Faults
	require.ErrorAs(t, err, &faults)
	require.NoError(t, os.WriteFile(path, []byte("tokens:\n  - id: A\n    may: [sing]\n"), 0o644))
	_, err = auth.Open(auth.Options{File: path})
	require.ErrorAs(t, err, &faults)
	require.Greater(t, len(faults.List), 2, "all faults at once")
}

// Without a file, this machine's own programs need no token; web pages in a
// browser on it, and callers elsewhere, are not let in.
func TestLoopback(t *testing.T) {
	k, err := auth.Open(auth.Options{Loopback: true, Sources: map[string]string{"lab": "lab-token-0123456789"}})
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1:9601", "127.0.0.1", "localhost:9601", "[::1]:9601", "127.9.9.9"} {
		r := request("")
		r.Host = host
		who, err := k.Authenticate(r)
		require.NoError(t, err, host)
		require.True(t, who.Anonymous())
		require.Equal(t, auth.DefaultTenant, who.Tenant)
		require.True(t, who.May(auth.Ingest, "orders") && who.May(auth.Check, "acme/crm@check"))
		require.False(t, who.May(auth.Ingest, "lab"), "a source with a token wants it")
	}
	for _, host := range []string{"evil.example", "evil.example:9601", "127.0.0.1.evil.example", "10.0.0.1:9601", ""} {
		r := request("")
		r.Host = host
		_, err := k.Authenticate(r)
		require.ErrorIs(t, err, auth.ErrUnauthenticated, host)
	}
	for name, value := range map[string]string{
		"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Authorization": "Basic eDp5",
	} {
		r := request("")
		r.Header.Set(name, value)
		_, err := k.Authenticate(r)
		require.ErrorIs(t, err, auth.ErrUnauthenticated, name)
	}
	far, err := auth.Open(auth.Options{Sources: map[string]string{"lab": "lab-token-0123456789"}})
	require.NoError(t, err)
	_, err = far.Authenticate(request(""))
	require.ErrorIs(t, err, auth.ErrUnauthenticated)
	_, err = far.Authenticate(request("lab-token-0123456789"))
	require.NoError(t, err)
}
