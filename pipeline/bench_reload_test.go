package pipeline

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// BenchmarkReload reloads the file of one of 500 customers while events of the others are
// delivered to web servers, one after the other, each to three services. One operation is one
// reload; max-ms is the longest delivery that overlapped it, p50-ms that of all the others.
func BenchmarkReload(b *testing.B) {
	const services = 500
	arrived := make(chan struct{}, services)
	customer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
	}))
	b.Cleanup(customer.Close)
	dir := b.TempDir()
	w := embeddedWorld(b, dir)
	w.main, w.sink = "sources:\n  registry:\n    http: {}"+benchSource, hook(customer.URL)
	s := newStream(few, services/3, services)
	p := w.open(b, dir, s)
	var files config.Cache
	p.reloads.load = func() (*config.Config, error) {
		return assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv, config.Reuse(&files))
	}
	_, err := p.reloads.load()
	require.NoError(b, err)
	runs(b, p)
	send := push(p)
	deliver := func(entity int) time.Duration {
		for f := range benchFields {
			s.entities[entity][f] = rand.Uint32()
		}
		start := time.Now()
		send([]event{s.event(entity)})
		for range 3 {
			<-arrived
		}
		return time.Since(start)
	}
	for entity := 3; entity < services/3; entity++ { // c0 and its like are reloaded, or not of three
		deliver(entity)
	}
	var during, others []time.Duration
	file := filepath.Join(dir, "customers", "c00000.yaml")
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	n := 0
	for b.Loop() {
		n++
		changed := strings.Replace(string(text), "    deliver:", fmt.Sprintf("      more_%d: region\n    deliver:", n), 1)
		require.NoError(b, os.WriteFile(file, []byte(changed), 0o600))
		reloaded := make(chan error, 1)
		for range 20 {
			others = append(others, deliver(3+rand.IntN(services/3-3)))
		}
		go func() {
			_, err := p.Reload(b.Context(), false)
			reloaded <- err
		}()
		for running := true; running; {
			during = append(during, deliver(3+rand.IntN(services/3-3)))
			select {
			case err := <-reloaded:
				require.NoError(b, err)
				running = false
			default:
			}
		}
	}
	slices.Sort(others)
	b.ReportMetric(float64(slices.Max(during).Microseconds())/1000, "max-ms")
	b.ReportMetric(float64(others[len(others)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(slices.Max(others).Microseconds())/1000, "max-without-ms")
	b.ReportMetric(float64(len(during))/float64(n), "deliveries/reload")
}
