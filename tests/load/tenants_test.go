//go:build verify

package load

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// 50 tenants post 10 events a second each; another floods with all that he can. The
// others' p99 is at most twice theirs without him.
func TestTenantsBesideAFlooder(t *testing.T) {
	const tenants, rate, flooders = 50, 10, 16
	const lasts = 30 * time.Second
	w := newWorld(t, tenants+1, "")
	round := func() time.Duration {
		var mu sync.Mutex
		var times []time.Duration
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
		return percentile(times, 0.99)
	}
	round() // warms up
	alone := round()
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for i := range flooders {
		flood.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					_, _, _ = w.post(tenants, "events", "application/json", fmt.Sprintf(`{"id":"f%d","n":%d}`, i, n))
				}
			}
		})
	}
	beside := round()
	close(stop)
	flood.Wait()
	t.Logf("p99 alone %v, beside a flooder %v", alone, beside)
	require.LessOrEqual(t, beside, 2*max(alone, 5*time.Millisecond))
}

// 2,000 idle connections cost little, and callers are served beside them.
func TestIdleConnections(t *testing.T) {
	const connections = 2000
	w := newWorld(t, 1, "")
	before := w.memory("VmRSS")
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
	t.Logf("%d idle connections: %d MiB more", connections, (w.memory("VmRSS")-before)>>20)
}
