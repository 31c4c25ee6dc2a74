package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// A process that cannot start leaves a status that names the server, the cause and the remedy.
func TestFaultsAtStart(t *testing.T) {
	db := servers.Postgres(t)
	brokers, _ := servers.Kafka(t)
	postgres := func(url string) string { return fmt.Sprintf("store: {postgres: {url: %q}}\n", url) }
	kafka := func(broker string) string { return fmt.Sprintf("kafka: {brokers: [%q]}\n", broker) }
	dir := t.TempDir()
	damaged := filepath.Join(dir, "state.db")
	require.NoError(t, os.WriteFile(damaged, []byte(strings.Repeat("no database ", 1000)), 0o600))
	nobody := harness.FreeAddress(t)
	for name, f := range map[string]struct {
		more string
		fault
	}{
		"store refuses":      {postgres("postgres://u@"+nobody+"/x?sslmode=disable") + kafka(brokers[0]), fault{what: "store", why: "refused", do: "start it"}},
		"no such database":   {postgres(strings.Replace(db, "/postgres?", "/missing?", 1)) + kafka(brokers[0]), fault{what: "store", why: "missing", do: "create the database"}},
		"no tables":          {postgres(db) + kafka(brokers[0]), fault{what: "store", why: "state tables", do: "weir migrate"}},
		"no brokers":         {postgres(db) + kafka(nobody), fault{what: "kafka", why: "refused", do: "start it"}},
		"no Valkey":          {fmt.Sprintf("gate: {valkey: {address: %q}}\n", nobody), fault{what: "gate", why: "refused", do: "start it"}},
		"no folder":          {fmt.Sprintf("data_dir: %q\n", damaged), fault{what: "store", why: "not a directory", do: "correct the path"}},
		"no database file":   {fmt.Sprintf("data_dir: %q\n", dir), fault{what: "store", why: "damaged|not a database", do: "restore a backup|correct the path|disk"}},
		"nothing answers":    {postgres("postgres://u@"+speaks(t, "220 mail\r\n")+"/x?sslmode=disable") + kafka(brokers[0]), fault{what: "store", why: ".", do: "."}},
		"target unreachable": {"", fault{what: "acme/all@out", why: "refused", do: "start it"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := harness.Simple(t, f.more, map[string]string{"acme": hook(nobody)})
			s := status(t, p)
			require.Equal(t, operate.LevelDown, s.Level)
			require.NotEmpty(t, s.Unasked)
			require.NotEmpty(t, s.Do)
			err := f.said(s)
			require.ErrorContains(t, err, "no since", "when a server failed is unknown without a process")
		})
	}
}

// Work that waits for an operator is a line, and so is each configuration that is not used.
func TestFaultsOfOperation(t *testing.T) {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme"), "zest": harness.FileSink("zest")})
	p.Append("events.jsonl", harness.Event(1, "E1", "ripe"))
	run := p.Start("run")
	harness.Eventually(t, "a delivery", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), 0, "") })
	run.Ready(200)
	require.Zero(t, p.Start("pause zest/all@out --reason contract").Wait())
	customer := p.Read("customers/acme.yaml")
	p.Replace("customers/acme.yaml", strings.Replace(customer, "state: state", "ripeness: state", 1))
	require.Zero(t, p.Start("reload").Wait())
	p.Replace("customers/zest.yaml", "customer: zest\nprojections: 7\n")
	require.NoError(t, run.Cmd.Process.Signal(syscall.SIGHUP))
	requireSaid(t, p, []fault{
		{what: "zest/all@out", why: "paused by .*: contract", do: "weir resume zest/all@out", ends: true},
		{what: "configuration", why: "outdated|earlier", do: "weir replay --outdated", ends: true},
		{what: "reload", why: "refused", do: "weir validate", ends: true},
		{what: p.Path("customers/zest.yaml"), why: "not usable.*projections", do: "weir validate", ends: true},
	})
}

// While a server is down the status has its error, since when, the next try and the remedy,
// and says nothing that it does not know. It is named at the second check at the latest, which
// pipeline.TestHungServersAreNamedWithinTenSeconds shows to be ten seconds.
func TestFaultsOfServers(t *testing.T) {
	store, kafka, gate := servers.StartOwn(t, "postgres"), servers.StartOwn(t, "kafka"), servers.StartOwn(t, "valkey")
	more := fmt.Sprintf("store: {postgres: {url: %q}}\nkafka: {brokers: [%q]}\ngate: {valkey: {address: %q}}\n", store.Address, kafka.Address, gate.Address)
	p := harness.Simple(t, more, map[string]string{"acme": harness.FileSink("acme")})
	p.LogBrokers = []string{kafka.Address}
	p.Write("weir.yaml", harness.ReplaceOnce(t, harness.SimpleMain+more, "127.0.0.1:0", harness.FreeAddress(t))) // where status asks
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(5, 0, 1))
	harness.Eventually(t, "the work before", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), 5, "r0") })
	run.Ready(200)
	down := func(what, why, do string) {
		t.Helper()
		harness.Eventually(t, what, func() error {
			s := status(t, p)
			i := operate.Item{Why: s.Error, Since: s.Since, NextTry: s.NextTry, Do: s.Do}
			for _, x := range s.Items {
				if x.What == what && s.Error == "" {
					i = x
				}
				if x.Why == "changes are being delivered" || x.Why == "records are being decided" {
					return fmt.Errorf("%s: %s", x.What, x.Why)
				}
			}
			switch {
			case s.Level == operate.LevelOK:
				return errors.New("all is well")
			case !strings.Contains(i.Why, why) || !strings.Contains(i.Do, do) || i.Since.IsZero() || i.NextTry.IsZero():
				return fmt.Errorf("%+v", i)
			}
			return nil
		})
	}
	gate.Kill()
	down("gate", "refused", "start it")
	gate.Start()
	harness.Eventually(t, "all is well", func() error {
		if s := status(t, p); s.Level != operate.LevelOK {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	store.Kill()
	down("store", "refused", "start it")
	store.Start()
	run.Ready(200)
	kafka.Kill()
	down("kafka", "refused", "start it")
}
