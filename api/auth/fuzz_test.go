package auth_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/stretchr/testify/require"
)

// A token has one text only: two texts with one meaning would be two names of a rate and of
// a log line.
func FuzzToken(f *testing.F) {
	_, text := auth.NewToken()
	for _, seed := range []string{text, "weir_", "weir_a_" + strings.Repeat("A", 43), "weir_a_\r\n" + strings.Repeat("A", 43), ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := auth.ParseToken(text)
		if !ok {
			return
		}
		require.Len(t, text, len("weir__")+len(id)+43)
		require.True(t, strings.HasPrefix(text, "weir_"+id+"_"))
		for _, c := range text {
			require.True(t, c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z', "%q", text)
		}
	})
}

// No Authorization header but the token's own lets anybody in.
func FuzzAuthorization(f *testing.F) {
	// The token is fixed so that findings can be repeated.
	token := "weir_fuzz_" + strings.Repeat("A", 43)
	path := filepath.Join(f.TempDir(), "tokens.yaml")
	require.NoError(f, os.WriteFile(path, []byte("tokens:\n"+entry("fuzz", token, "")), 0o644))
	k, err := auth.Open(auth.Options{File: path, Sources: map[string]string{"lab": "lab-token-0123456789"}})
	require.NoError(f, err)
	for _, seed := range []string{"Bearer " + token, "bearer  " + token + " ", "Bearer lab-token-0123456789", "Basic " + token, token, "Bearer", "Bearer \t" + token, ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := request("")
		r.Header = http.Header{"Authorization": {header}}
		who, err := k.Authenticate(r)
		if err != nil {
			require.Zero(t, who)
			return
		}
		scheme, text, _ := strings.Cut(header, " ")
		require.True(t, strings.EqualFold(scheme, "bearer"))
		require.Contains(t, []string{token, "lab-token-0123456789"}, strings.Trim(text, " "))
	})
}
