package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

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
		asYAML, err := yaml.Marshal(v)
		require.NoError(t, err)
		seen.Write(asYAML)
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
