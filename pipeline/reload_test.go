package pipeline

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/stretchr/testify/require"
)

// A reload names the changed keys of the main file, and no others.
func TestWhatAReloadCannotChange(t *testing.T) {
	before := loadExample(t, "production")
	require.Empty(t, config.MainChanges(before, loadExample(t, "production")))
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
		require.Equal(t, []string{want}, config.MainChanges(before, after))
	}
	after := loadExample(t, "production")
	after.Projections = after.Projections[1:]
	after.Customers = after.Customers[1:]
	after.CustomerFiles = append(after.CustomerFiles, "more/*.yaml")
	after.Sources[0].Pos.Line += 7
	require.Empty(t, config.MainChanges(before, after), "customers, and where a source stands in its file")
}

// A reload always needs a token, and answers with the fault.
func TestAskingForAReload(t *testing.T) {
	p, address := serveOperators(t, config.Admin{})
	resp, err := http.Post("http://"+address+control.ReloadPath, "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)

	running, err := control.At(p.cfg)
	require.NoError(t, err)
	_, err = running.Reload(t.Context(), false)
	require.ErrorContains(t, err, "it is starting")
	p.monitor.started.Store(true)
	wrong := errors.New("acme.yaml:7: nonsense")
	p.reloads.load = func() (*config.Config, error) { return nil, wrong }
	_, err = running.Reload(t.Context(), false)
	var refused *control.ReloadRefused
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, err, "the new configuration is refused: acme.yaml:7: nonsense", "said once")

	require.NoError(t, p.control.Close())
	_, err = running.Reload(t.Context(), false)
	require.ErrorContains(t, err, "ending")
}

// A reload reopens the sinks of the services that it changes: one of 500 here. The stage, and
// with it the group and all other sinks, stay.
func TestAReloadReopensTheSinksThatItChanges(t *testing.T) {
	p := openEmbedded(t, Roles{Work: true}, fileSource)
	dir := t.TempDir()
	configured := func(last string) *config.Config {
		text := "customer: acme\nprojections:\n  p:\n    fields: {id: id}\n    deliver:\n"
		for i := range 500 {
			text += fmt.Sprintf("      s%d: {file: {path: out/%d.jsonl}}\n", i, i)
		}
		text = strings.Replace(text, "499.jsonl", last, 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte(text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(fileSource+"\ncustomers: [acme.yaml]\n"), 0o600))
		c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
		require.NoError(t, err)
		return c
	}
	load := func(c *config.Config, identity string) *settings {
		numbers, err := p.store.Services(t.Context(), c.ServiceNames())
		require.NoError(t, err)
		plan, err := assemble.Plan(c, numbers, 1)
		require.NoError(t, err)
		now := newSettings(c, plan, []byte(identity))
		require.NoError(t, p.active.switchTo(t.Context(), now, false))
		return now
	}
	before := load(configured("499.jsonl"), "before")
	started, err := p.active.supervise(t.Context(), "work", true, p.work.start)
	require.NoError(t, err)
	<-before.delivering
	stage := p.work.stage.Load()
	after := load(configured("another.jsonl"), "after")
	<-after.delivering
	require.Same(t, stage, p.work.stage.Load())
	r, err := p.work.difference(before, after)
	require.NoError(t, err)
	require.Len(t, r.Add, 1)
	require.Equal(t, "acme/p@s499", r.Add[0].Name)
	require.Equal(t, []int32{r.Add[0].Number}, r.Remove)
	require.NoError(t, closeSinks(r.Add))
	require.NoError(t, started.stop())

	var checked []string
	changed := changedDeliveries(before.cfg)
	for _, s := range after.cfg.Services() {
		if changed(s) {
			checked = append(checked, s.Name)
		}
	}
	require.Equal(t, []string{"acme/p@s499"}, checked, "the others are not made to be checked")
}
