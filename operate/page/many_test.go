package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// manyServices is a page of so many services, a hundred to a customer, with the series of a
// process that has its own for the first 500 only.
func manyServices(t testing.TB, n int) *page.Page {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(harness.SimpleMain), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "customers"), 0o755))
	for c := range n / 100 {
		text := fmt.Sprintf("customer: c%03d\nprojections:\n", c)
		for i := range 100 {
			text += fmt.Sprintf("  p%02d:\n    fields: {id: id}\n    deliver:\n      out: {file: {path: ../out/c%d_%d.jsonl}}\n", i, c, i)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "customers", fmt.Sprintf("c%03d.yaml", c)), []byte(text), 0o644))
	}
	cfg, err := assemble.Load(filepath.Join(dir, "weir.yaml"), nil)
	require.NoError(t, err)
	w := newWorld(t, func(o *page.Options) { o.Config = func() *config.Config { return cfg }; o.Token = "" })
	delivered := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_deliveries_total", Help: "x"}, []string{"service", "outcome"})
	decided := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_decisions_total", Help: "x"}, []string{"service", "decision"})
	w.registry.MustRegister(delivered, decided)
	w.conditions = map[string]deliver.Condition{}
	for i, s := range cfg.Services() {
		label := s.Name
		if i >= servicelabel.Most {
			label, _, _ = strings.Cut(s.Name, "/")
			label += "/*"
		}
		delivered.WithLabelValues(label, "delivered").Add(7)
		decided.WithLabelValues(label, "sent").Add(7)
		w.conditions[s.Name] = deliver.Condition{State: deliver.StateRunning}
		if i%50 == 0 {
			w.conditions[s.Name] = deliver.Condition{State: deliver.StatePaused, Pause: &deliver.Pause{Cause: deliver.PausedByRefusal}, Since: w.now.Add(-time.Hour), Error: "401"}
		}
	}
	return w.page
}

// However many services there are, no page lists them all, and those without counters of their own have
// no number.
func TestManyServices(t *testing.T) {
	p := manyServices(t, 2_000)
	for path, told := range map[string]string{
		"/": "more customers", "/services": "The first 200 of 2000", "/services?q=c019/p99": `data-label="delivered">–<`, "/services?q=c000/p01": `data-label="delivered">7<`,
		"/letters": "", "/replay": "", "/system": ">2000<", "/explain?entity=x": "", "/history": "",
	} {
		answer := httptest.NewRecorder()
		p.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, local+path, nil))
		require.Equal(t, 200, answer.Code, path)
		require.Contains(t, answer.Body.String(), told, path)
		require.Less(t, answer.Body.Len(), 300<<10, path)
	}
}
