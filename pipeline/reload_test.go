package pipeline

import (
	"errors"
	"net/http"
	"testing"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/stretchr/testify/require"
)

// Whatever is not in a customer's file is named, and nothing else is.
func TestWhatAReloadCannotChange(t *testing.T) {
	before := loadExample(t, "production")
	require.Empty(t, mainChanges(before, loadExample(t, "production")))
	for want, change := range map[string]func(*config.Config){
		"store":     func(c *config.Config) { c.Store.Postgres.URL = config.NewSecret("postgres://elsewhere/weir") },
		"kafka":     func(c *config.Config) { c.Kafka.SASL.Password = config.NewSecret("another") },
		"sources":   func(c *config.Config) { c.Sources[0].Strip = append(c.Sources[0].Strip, "more") },
		"merge":     func(c *config.Config) { c.Merge.Required = append(c.Merge.Required, c.Sources[0].Name) },
		"admin":     func(c *config.Config) { c.Admin.Token = config.NewSecret("0123456789abcdef") },
		"retention": func(c *config.Config) { c.Retention.Audit++ },
	} {
		after := loadExample(t, "production")
		change(after)
		require.Equal(t, []string{want}, mainChanges(before, after))
	}
	after := loadExample(t, "production")
	after.Projections = after.Projections[1:]
	after.Customers = after.Customers[1:]
	after.CustomerFiles = append(after.CustomerFiles, "more/*.yaml")
	after.Sources[0].Pos.Line += 7
	require.Empty(t, mainChanges(before, after), "customers, and where a source stands in its file")
}

// A reload needs a token, also where nothing else does, and says what was wrong.
func TestAskingForAReload(t *testing.T) {
	p, address := listening(t, config.Admin{}, echo)
	resp, err := http.Post("http://"+address+control.ReloadPath, "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)

	running, err := control.At(p.cfg)
	require.NoError(t, err)
	_, err = running.Reload(t.Context(), false)
	require.ErrorContains(t, err, "it is starting")
	p.health.started.Store(true)
	wrong := errors.New("acme.yaml:7: nonsense")
	p.opt.Load = func() (*config.Config, error) { return nil, wrong }
	_, err = running.Reload(t.Context(), false)
	var refused *control.ReloadRefused
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, err, "the new configuration is refused: acme.yaml:7: nonsense", "said once")

	require.NoError(t, p.control.Close())
	_, err = running.Reload(t.Context(), false)
	require.ErrorContains(t, err, "ending")
}
