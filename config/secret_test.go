package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// A printed or logged configuration, or a part of it, must not leak.
func TestSecretsAreNotSeen(t *testing.T) {
	c := load(t, mainFile, acmeFile)
	require.Contains(t, c.Store.Postgres.URL.Reveal(), "hunter2")

	var seen bytes.Buffer
	values := []any{c, *c, c.Store.Postgres, c.Store.Postgres.URL, &c.Store.Postgres.URL, c.Services(), c.Projections[0].Deliver[1].Sink}
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
			_, _ = fmt.Fprintf(&seen, verb+"\n", v)
		}
		asJSON, err := json.Marshal(v)
		require.NoError(t, err)
		seen.Write(asJSON)
		for _, h := range []slog.Handler{slog.NewTextHandler(&seen, nil), slog.NewJSONHandler(&seen, nil)} {
			slog.New(h).Info("configuration", "value", v)
		}
	}
	hexOfHunter := fmt.Sprintf("%x", "hunter2")
	require.NotContains(t, seen.String(), "hunter2")
	require.NotContains(t, seen.String(), hexOfHunter)
	require.NotContains(t, seen.String(), "whsec_")
	require.Contains(t, seen.String(), "***")
}

func TestSecretIsEmptyWhenUnset(t *testing.T) {
	var s config.Secret
	require.True(t, s.IsZero())
	require.Empty(t, s.String())
	require.Equal(t, "***", config.NewSecret("x").String())
}

// loadSecret loads a customer whose secrets of hmac and of a webhook are that of a variable.
func loadSecret(t *testing.T, secret string, set bool) (*config.Config, error) {
	path := write(t, map[string]string{"weir.yaml": smallMain + "customers_env: [SECRET]\n", "acme.yaml": `
customer: acme
secrets: {pseudonym: "${SECRET}"}
projections:
  p:
    fields: {id: {expr: 'hmac(string(doc.id), "pseudonym")'}}
    deliver: {out: {webhook: {url: "https://acme.example/", secret: "${SECRET}"}}}
`})
	return assemble.Load(path, func(string) (string, bool) { return secret, set })
}

// A key of hmac that is empty or can be guessed makes pseudonyms of nothing.
func TestKeysOfHMAC(t *testing.T) {
	for _, key := range []string{"", "\n", "15 bytes do not", "15 bytes do not\r\n", strings.Repeat("\n", 20)} {
		_, err := loadSecret(t, key, true)
		require.ErrorContains(t, err, "acme.yaml:3:22: secrets.pseudonym: is too short", "%q", key)
	}
	_, err := loadSecret(t, "", false)
	require.ErrorContains(t, err, "secrets.pseudonym: environment variable SECRET is not set")

	key := func(secret string) []byte {
		c, err := loadSecret(t, secret, true)
		require.NoError(t, err)
		return c.Projections[0].Spec().Secrets["pseudonym"]
	}
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	require.Equal(t, []byte(secret), key(secret))
	require.Equal(t, []byte(secret), key(secret+"\r\n"), "without the line end")
}

// The configuration reads the secret of a webhook as the sink does.
func TestSecretsOfWebhooks(t *testing.T) {
	for _, secret := range []string{
		"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA==", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA\n", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA==\r\n",
	} {
		_, err := loadSecret(t, secret, true)
		require.NoError(t, err, "%q", secret)
	}
	for secret, want := range map[string]string{
		"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=": "is too short", "whsec_": "is too short", "whsec_MDEy-zQ1Njc4_TAxMjM0NTY3ODkwMTIz": "is not base64",
		"whsec_MDEyMzQ1Njc4 OTAxMjM0NTY3ODkwMTIz": "is not base64", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA==": "does not begin with whsec_",
	} {
		_, err := loadSecret(t, secret, true)
		require.ErrorContains(t, err, "webhook.secret: "+want, "%q", secret)
	}
}
