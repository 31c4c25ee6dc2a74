//go:build verify

package load

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// container is the documented limit of a container with the default of
// limits.memory: 1.5 × (256 MiB + 128 MiB).
const container = 576 << 20

// 8 tokens × 4 clients post batches of 15 MB: the process lives within the limit of
// its container, every client gets an answer, and all get in that retry.
func TestLargeBatchesUnderAMemoryLimit(t *testing.T) {
	const tenants, clients, batches = 8, 4, 1
	w := newWorld(t, tenants, "limits: {memory: 256MiB}\n")
	w.confine(container)
	row := func(tenant, i int) string {
		return fmt.Sprintf(`{"id":"t%d-%d","text":%q,"values":[%s0]}`, tenant, i, strings.Repeat("x", 10<<10), strings.Repeat("1,", 2400))
	}
	var mu sync.Mutex
	statuses := map[int]int{}
	var all sync.WaitGroup
	for tenant := range tenants {
		for client := range clients {
			all.Go(func() {
				var rows []string
				for i := range 1000 {
					rows = append(rows, row(tenant, client*1000+i))
				}
				body := "[" + strings.Join(rows, ",") + "]"
				for sent := 0; sent < batches; {
					status, retry, err := w.post(tenant, "events:batch", "application/json", body)
					if err != nil {
						if w.run.Ended() {
							t.Errorf("no answer: %v", err)
							return
						}
						mu.Lock()
						statuses[0]++ // a body that did not end in time
						mu.Unlock()
						<-time.After(time.Second)
						continue
					}
					mu.Lock()
					statuses[status]++
					mu.Unlock()
					switch status {
					case http.StatusAccepted:
						sent++
					case http.StatusServiceUnavailable:
						if retry == "" {
							t.Error("503 without Retry-After")
							return
						}
						<-time.After(time.Second)
					default:
						t.Errorf("status %d", status)
						return
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("answers %v, peak %d MiB of %d", statuses, w.memory("VmHWM")>>20, container>>20)
	require.False(t, w.run.Ended())
	require.Equal(t, tenants*clients*batches, statuses[http.StatusAccepted])
	require.Less(t, w.memory("VmHWM"), int64(container))
}
