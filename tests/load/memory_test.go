//go:build verify

package load

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/harness"
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
	t.Logf("answers %v, peak %d MiB of %d", statuses, w.run.Memory("VmHWM")>>20, container>>20)
	require.False(t, w.run.Ended())
	require.Equal(t, tenants*clients*batches, statuses[http.StatusAccepted])
	require.Less(t, w.run.Memory("VmHWM"), int64(container))
}

// 200 customers get two events of nearly 8 MiB, the largest that are accepted: a process with
// the budget that a container of 400 MiB has by default lives within it, and no change
// becomes a dead letter.
func TestLargeEventsForManyCustomers(t *testing.T) {
	const customers, events, limit = 200, 2, 400 << 20
	var mu sync.Mutex
	got := map[string]int{}
	w := &world{t: t}
	var peak int64 // as each request sees it: the resources of an ended process include those of the one that forked it
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		peak = max(peak, w.run.Memory("VmHWM"))
		if err == nil && n > 7<<20 {
			got[r.URL.Path]++
		}
	}))
	t.Cleanup(hook.Close)
	files := map[string]string{
		"weir.yaml": "sources: {big: {file: {path: in.jsonl}, entity: id}}\ncustomers: [\"customers/*.yaml\"]\nadmin: {listen: \"127.0.0.1:0\"}\nlimits: {memory: 128MiB}\n",
		"in.jsonl":  "",
	}
	for i := range customers {
		files[fmt.Sprintf("customers/c%d.yaml", i)] = fmt.Sprintf("customer: c%d\nprojections:\n  all: {fields: {id: id, text: text, n%d: n}, deliver: {hook: {webhook: {url: %q, secret: %q}}}}\n", i, i%4, fmt.Sprintf("%s/%d", hook.URL, i), harness.WebhookSecret)
	}
	for n := range events {
		files["in.jsonl"] += fmt.Sprintf(`{"id":"e","n":%d,"text":%q}`+"\n", n, strings.Repeat("x", 8<<20-4<<10))
	}
	w.p = harness.NewProject(t, files)
	mu.Lock()
	w.run = w.p.Start("run", "--until-idle")
	mu.Unlock()
	w.confine(limit)
	harness.Eventually(t, "the source is delivered", func() error { return harness.Want(w.run.Ended(), true) })
	t.Logf("peak %d MiB of %d", peak>>20, limit>>20)
	require.Less(t, peak, int64(limit))
	require.Len(t, got, customers)
	require.Empty(t, w.p.Letters())
}
