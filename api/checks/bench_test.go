package checks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// BenchmarkChecker asks from many goroutines at a time, on PostgreSQL with
// 100,000 rows: for existing rows, and for a new one each time.
func BenchmarkChecker(b *testing.B) {
	s, err := postgres.Open(b.Context(), postgres.Options{URL: servers.Postgres(b), MaxConns: 4})
	require.NoError(b, err)
	defer s.Close()
	require.NoError(b, s.Migrate(b.Context()))
	numbers, err := s.Services(b.Context(), []string{"acme/crm@check"})
	require.NoError(b, err)
	service := Service{Name: "acme/crm@check", Number: numbers["acme/crm@check"]}
	c := New(Options{Store: s})
	defer c.Close(context.WithoutCancel(b.Context()))
	const entities, page = 100_000, 1000
	there := Given("there")
	for n := 0; n < entities; n += page {
		var requests []Request
		for i := range page {
			requests = append(requests, Request{Entity: fmt.Sprint("banana-", n+i), Content: there})
		}
		answers, err := c.Check(b.Context(), service, requests)
		require.NoError(b, err)
		var done []Confirmation
		for i, a := range answers {
			require.NoError(b, a.Err)
			done = append(done, Confirmation{requests[i].Entity, a.Value.Version})
		}
		_, err = c.Confirm(b.Context(), service, done)
		require.NoError(b, err)
	}
	for _, changed := range []bool{false, true} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("changed=%v/callers=%d", changed, callers), func(b *testing.B) {
				b.SetParallelism(callers)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						r := Request{Entity: fmt.Sprint("banana-", rand.IntN(entities)), Content: there}
						if changed {
							r.Content = Given(fmt.Sprint(rand.Uint64()))
						}
						results, err := c.Check(b.Context(), service, []Request{r})
						if err != nil || results[0].Err != nil {
							b.Error(err, results)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
			})
		}
	}
}
