//go:build verify

package checkhttp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/tests/servers"
)

var (
	loadRows = flag.Int("checkhttp.rows", 2000, "rows of the load test")
	loadRate = flag.Int("checkhttp.rate", 200, "requests per second of the load test")
	loadTime = flag.Duration("checkhttp.time", 2*time.Second, "duration of the load test")
)

// loadPayload is the document of an entity; its form is the one of change number
// n.
func loadPayload(entity, n int) string {
	return fmt.Sprintf(`{"banana":%d,"ripeness_level":%d,"origin":"EC","tags":["fair","organic"],"weight":{"value":118.%d,"unit":"g"}}`, entity, n%9, n)
}

// postLoad sends a request and returns its answer and the time since it was due.
func postLoad(t *testing.T, caller *http.Client, url string, due time.Time, body string) (map[string]any, time.Duration, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer acme")
	response, err := caller.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	took := time.Since(due)
	if err != nil {
		return nil, took, err
	}
	var answer map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		return nil, took, fmt.Errorf("%s: %d %s", url, response.StatusCode, text)
	}
	return answer, took, nil
}

// reportLoad logs the latencies of requests by kind, and the processor time used.
func reportLoad(t *testing.T, times map[string][]time.Duration, requests int, elapsed, used time.Duration) {
	var all []time.Duration
	for _, kind := range []string{"duplicate", "pass", "confirm"} {
		require.NotEmpty(t, times[kind], kind)
		t.Logf("%-9s %s", kind, percentiles(times[kind]))
		all = append(all, times[kind]...)
	}
	require.Len(t, all, requests)
	t.Logf("%-9s %s", "all", percentiles(all))
	t.Logf("%.0f requests/s, %v of processor time per request, the callers' included, PostgreSQL's not",
		float64(requests)/elapsed.Seconds(), (used / time.Duration(requests)).Round(time.Microsecond))
}

// Callers send at a steady rate, independent of the answers: seven of ten send known content,
// three a change, which they confirm after the answer. All answers must be right. Latencies
// are printed, not asserted: with `SUITE=load make verify`, for 2,000,000 rows.
func TestLoad(t *testing.T) {
	address := servers.Postgres(t)
	s, err := postgres.Open(t.Context(), postgres.Options{URL: address, MaxConns: 4})
	require.NoError(t, err)
	w := worldOn(t, s).start()
	numbers, err := s.Services(t.Context(), []string{service})
	require.NoError(t, err)
	loaded := time.Now()
	preload(t, address, numbers[service], *loadRows)
	t.Logf("%d rows copied in %v", *loadRows, time.Since(loaded).Round(time.Millisecond))

	transport := &http.Transport{MaxConnsPerHost: 256, MaxIdleConnsPerHost: 256} // waiting for one counts
	defer transport.CloseIdleConnections()
	caller := &http.Client{Transport: transport, Timeout: time.Minute}
	post := func(due time.Time, verb, body string) (map[string]any, time.Duration, error) {
		return postLoad(t, caller, w.url+"/v1/services/"+path+verb, due, body)
	}

	var mu sync.Mutex
	times := map[string][]time.Duration{}
	var wrong []error
	// note records the latency and the error of a request.
	note := func(kind string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		times[kind] = append(times[kind], took)
		if err != nil && len(wrong) < 5 {
			wrong = append(wrong, err)
		}
	}
	want := func(answer map[string]any, member string, value any, err error) error {
		if err == nil && answer[member] != value {
			err = fmt.Errorf("%s is %v, not %v: %v", member, answer[member], value, answer)
		}
		return err
	}
	// Every entity is used once or not at all, so that each answer is known. A
	// confirmation follows a pass, which it waits for, and is one of the requests
	// of the rate: every second one of those for a change.
	order := rand.Perm(*loadRows)
	requests := int(loadTime.Seconds() * float64(*loadRate))
	require.LessOrEqual(t, requests, len(order), "more rows are needed")
	type pass struct {
		entity  int
		version any
		at      time.Time
	}
	passed := make(chan pass, requests)
	var callers sync.WaitGroup
	start, used := time.Now(), processorTime(t)
	for n := range requests {
		due := start.Add(time.Duration(n) * time.Second / time.Duration(*loadRate))
		<-time.After(time.Until(due))
		entity := order[n]
		callers.Go(func() {
			body := func(n int) string {
				return fmt.Sprintf(`{"entity":"banana-%07d","payload":%s,"event_id":"event-%d"}`, entity, loadPayload(entity, n), entity)
			}
			if n%10 < 3 {
				if (n/10*3+n%10)%2 == 1 {
					p := <-passed
					answer, took, err := post(later(due, p.at), "confirm", fmt.Sprintf(`{"entity":"banana-%07d","version":%v}`, p.entity, p.version))
					note("confirm", took, want(answer, "confirmed_version", p.version, err))
					return
				}
				answer, took, err := post(due, "check", body(1))
				note("pass", took, want(answer, "decision", "pass", err))
				passed <- pass{entity, answer["version"], time.Now()} // also after an error: one waits for it
				return
			}
			answer, took, err := post(due, "check", fmt.Sprintf(`{"entity":"banana-%07d","payload":%s}`, entity, loadPayload(entity, 0)))
			note("duplicate", took, want(answer, "decision", "duplicate", err))
		})
	}
	callers.Wait()
	elapsed := time.Since(start)
	require.Empty(t, wrong)
	reportLoad(t, times, requests, elapsed, processorTime(t)-used)
}

// later returns the later of two moments.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// processorTime returns what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// preload copies confirmed rows in.
func preload(t *testing.T, address string, number int32, rows int) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer connection.Close(t.Context())
	n := 0
	copied, err := connection.CopyFrom(t.Context(), pgx.Identifier{"checks"},
		[]string{"entity", "service", "revision", "content", "version", "delivered_version", "delivered", "memory"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if n == rows {
				return nil, nil
			}
			digest, err := canonicaltree.Sum([]byte(loadPayload(n, 0)), canonicaltree.Literal)
			content := change.Hashed(canonicaltree.Scheme, digest)
			row := []any{fmt.Sprintf("banana-%07d", n), number, int64(1), []byte(content), int64(7), int64(7), []byte(content), nil}
			n++
			return row, err
		}))
	require.NoError(t, err)
	require.EqualValues(t, rows, copied)
	var size int64
	require.NoError(t, connection.QueryRow(t.Context(), `SELECT pg_total_relation_size('checks')`).Scan(&size))
	t.Logf("%d rows, %d bytes each with their index", rows, size/int64(rows))
}

func percentiles(times []time.Duration) string {
	slices.Sort(times)
	at := func(part float64) time.Duration {
		return times[min(len(times)-1, int(part*float64(len(times))))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%6d requests: p50 %v, p90 %v, p99 %v, p99.9 %v, longest %v", len(times), at(0.5), at(0.9), at(0.99), at(0.999), at(1))
}
