//go:build verify

package load

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// 50 tenants post 10 events a second each; another floods with all that he can. The
// others' p99 is at most twice theirs without him. Rounds with and without him alternate:
// other work on the machine meets both.
func TestTenantsBesideAFlooder(t *testing.T) {
	const tenants, rate, rounds = 50, 10, 4
	const lasts = 8 * time.Second
	w := newWorld(t, tenants+1, "")
	round := func() (times []time.Duration) {
		var mu sync.Mutex
		var all sync.WaitGroup
		begin := time.Now()
		for tenant := range tenants {
			all.Go(func() {
				for n := range int(lasts.Seconds()) * rate {
					due := begin.Add(time.Duration(n)*time.Second/rate + time.Duration(tenant)*time.Second/rate/tenants)
					<-time.After(time.Until(due))
					status, _, err := w.post(tenant, "events", "application/json", fmt.Sprintf(`{"id":"e%d","n":%d}`, n%100, n))
					took := time.Since(due)
					if err != nil || status != http.StatusAccepted {
						t.Errorf("status %d, %v", status, err)
						return
					}
					mu.Lock()
					times = append(times, took)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return times
	}
	flooded := func() []time.Duration {
		// A process of its own, so that its work does not delay the others' clients.
		flood := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFlooder$")
		flood.Env = append(os.Environ(), fmt.Sprintf("%s=http://%s/v1/sources/s%d/events %s", flooder, w.run.Address("ingest"), tenants, w.tokens[tenants]))
		require.NoError(t, flood.Start())
		defer func() {
			require.NoError(t, flood.Process.Kill())
			_ = flood.Wait()
		}()
		return round()
	}
	round() // warms up
	var alone, beside []time.Duration
	for range rounds {
		alone = append(alone, round()...)
		beside = append(beside, flooded()...)
	}
	without, with := percentile(alone, 0.99), percentile(beside, 0.99)
	t.Logf("p50 %v and %v, p99 %v and %v, alone and beside a flooder", percentile(alone, 0.5), percentile(beside, 0.5), without, with)
	require.LessOrEqual(t, with, 2*max(without, 5*time.Millisecond))
}

// flooder is the variable with the address and the token of a flooder's process.
const flooder = "WEIR_LOAD_FLOODER"

// TestFlooder is the process of a flooder: it posts until it is killed.
func TestFlooder(t *testing.T) {
	address, token, found := strings.Cut(os.Getenv(flooder), " ")
	if !found {
		return // not started by the other test
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := 0; ; n++ {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(fmt.Sprintf(`{"id":"f%d","n":%d}`, i, n)))
				if err != nil {
					return
				}
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
				if answer, err := client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			}
		})
	}
	all.Wait()
}

// 2,000 idle connections cost little, and callers are served beside them.
func TestIdleConnections(t *testing.T) {
	const connections = 2000
	w := newWorld(t, 1, "")
	before := w.run.Memory("VmRSS")
	address := w.run.Address("ingest")
	for range connections {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(harness.Patience)))
		// One request makes it an idle connection, not a silent one.
		_, err = fmt.Fprintf(c, "POST /v1/sources/s0/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"id\":\"e\"}", w.tokens[0])
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1024))
		require.NoError(t, err)
	}
	for range 100 {
		status, _, err := w.post(0, "events", "application/json", `{"id":"e"}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, status)
	}
	t.Logf("%d idle connections: %d MiB more", connections, (w.run.Memory("VmRSS")-before)>>20)
}
