package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// The tables of the benchmarks: enough rows that the index has three levels.
const (
	benchEntities = 40_000
	benchServices = 5
)

func benchKey(n int) store.Key {
	n %= benchEntities * benchServices
	return store.Key{Service: int32(n % benchServices), Entity: "banana-" + strconv.Itoa(n/benchServices)}
}

// benchContent is a hash's worth of bytes that differs with n.
func benchContent(n int) change.Content {
	c := make(change.Content, 33)
	c[0] = 1
	binary.BigEndian.PutUint64(c[1:], uint64(n))
	return c
}

func benchStore(b *testing.B) *Store {
	s, _ := migrated(b)
	for _, sql := range []string{
		`INSERT INTO dam (entity, service, content, version)
		 SELECT 'banana-' || n / 5, n % 5, '\x01'::bytea || int8send(0) || decode(repeat('00', 24), 'hex'), 1 FROM generate_series(0, 199999) n ORDER BY 1, 2`,
		`INSERT INTO entities (id, docs, fence, version, fingerprint)
		 SELECT 'banana-' || n, ('{"registry":{"a":"' || repeat('x', 560) || '"}}')::json, '\x00112233', 1, '\x01' FROM generate_series(0, 39999) n`,
		`VACUUM ANALYZE`, `CHECKPOINT`,
	} {
		_, err := s.pool.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	return s
}

// BenchmarkCheck compares stand-alone dam checks: CompareAndSwap with batches
// of 1,000 keys, and the statement that one would write without it, once and
// with one commit per check. Compare only figures of one run.
func BenchmarkCheck(b *testing.B) {
	const batch = 1000
	s := benchStore(b)
	var next atomic.Int64 // goes on through all of them, so that a change is one
	plain := func(ctx context.Context, s *Store, k store.Key, c change.Content) (bool, error) {
		tag, err := s.pool.Exec(ctx, `UPDATE dam SET content = $3, version = version + 1
			WHERE entity = $1 AND service = $2 AND content IS DISTINCT FROM $3`, k.Entity, k.Service, []byte(c))
		return tag.RowsAffected() == 1, err
	}
	for _, changes := range []bool{false, true} {
		name := "duplicates"
		if changes {
			name = "changes"
		}
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/callers=%d/plain", name, callers), func(b *testing.B) {
				const each = 100 // statements per iteration, so that both can run the same number of iterations
				parallel(b, callers, func() error {
					for range each {
						n := int(next.Add(1))
						content := benchContent(0)
						if changes {
							content = benchContent(n)
						}
						if _, err := plain(b.Context(), s, benchKey(n*7919), content); err != nil {
							return err
						}
					}
					return nil
				})
				b.ReportMetric(float64(b.N)*each/b.Elapsed().Seconds(), "checks/s")
			})
			b.Run(fmt.Sprintf("%s/callers=%d/batched", name, callers), func(b *testing.B) {
				parallel(b, callers, func() error {
					first := int(next.Add(batch)) - batch
					checks := make([]store.Check, batch)
					for i := range checks {
						content := benchContent(0)
						if changes {
							content = benchContent(first + 1)
						}
						checks[i] = store.Check{Key: benchKey((first + i) * 7919), Content: content, Version: change.Version(first)}
					}
					_, err := s.CompareAndSwap(b.Context(), checks)
					return err
				})
				b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "checks/s")
			})
		}
	}
}

// parallel runs f b.N times from so many callers.
func parallel(b *testing.B, callers int, f func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkDecide is the database part of decisions: entities of 600 bytes,
// five dam checks per event of which three changed, 300 bytes of payload per
// change, the outbox of the last decision deleted by the next, two owners at a
// time.
func BenchmarkDecide(b *testing.B) {
	const checked, changed, owners = 5, 3, 2
	s := benchStore(b)
	revision, err := s.Activate(b.Context(), []byte("c"), false)
	require.NoError(b, err)
	for _, events := range []int{200, 1000} {
		b.Run(fmt.Sprintf("events=%d", events), func(b *testing.B) {
			docs := fmt.Appendf(nil, `{"registry":{"a":"%0560d"}}`, 0)
			var left atomic.Int64
			left.Store(int64(b.N))
			var group sync.WaitGroup
			for owner := range owners {
				p := store.Partition{Generation: 1, Number: int32(owner)}
				token := store.Token{byte(owner + 1)}
				taken, err := s.TakeOver(b.Context(), []store.Partition{p}, token)
				require.NoError(b, err)
				from := taken[0].NextOffset
				group.Go(func() {
					var published []int64
					for round := 1; left.Add(-1) >= 0; round++ {
						// Each owner has entities of its own, spread over the table.
						ids := make([]string, events)
						keys := make([]store.Key, 0, events*checked)
						for i := range ids {
							n := ((round*events+i)*7919%(benchEntities/owners))*owners + owner
							ids[i] = "banana-" + strconv.Itoa(n)
							for service := range checked {
								keys = append(keys, store.Key{Service: int32(service), Entity: ids[i]})
							}
						}
						written, err := s.Decide(b.Context(), store.Decision{Revision: revision.Number, Entities: ids, Published: published,
							Moves: []store.Move{{Partition: p, From: from, To: from + int64(events), Token: token}},
						}, func(loaded store.Loaded, lookup store.Lookup) (store.Outcome, error) {
							rows, err := lookup(keys)
							if err != nil {
								return store.Outcome{}, err
							}
							entities := loaded.Entities
							out := store.Outcome{Entities: entities, Outbox: []store.OutboxFrame{{Partition: p, Frame: make([]byte, 300*changed*events)}}}
							for i := range entities {
								entities[i].Docs = docs
							}
							for i, r := range rows {
								if i%checked < changed {
									out.Swaps = append(out.Swaps, store.Swap{Key: r.Key, Insert: !r.Found, Old: r.Content, New: benchContent(round), Version: change.Version(round)})
								}
							}
							return out, nil
						})
						if err != nil {
							b.Error(err)
							return
						}
						published, from = written, from+int64(events)
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)*float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
