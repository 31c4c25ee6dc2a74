package postgres

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

// Of the tables of the benchmarks: enough rows that the index has three levels.
const benchEntities = 40_000

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
		`INSERT INTO entities (id, docs, fence, version, fingerprint, writes, states)
		 SELECT 'banana-' || n, ('{"registry":{"a":"' || repeat('x', 560) || '"}}')::json, '\x00112233', 1, '\x01', 1,
		        (SELECT string_agg(set_byte('\x0022', 0, i) || decode(repeat('01', 41), 'hex'), '' ORDER BY i) FROM generate_series(0, 4) i) FROM generate_series(0, 39999) n`,
		`VACUUM ANALYZE`, `CHECKPOINT`,
	} {
		_, err := s.pool.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	return s
}

// BenchmarkDecide is the database part of decisions: entities of 600 bytes,
// five dam states each of which three change, 300 bytes of payload per
// change, two owners at a time.
func BenchmarkDecide(b *testing.B) {
	const changed, owners = 3, 2
	s := benchStore(b)
	revision, err := s.Activate(b.Context(), []byte("c"), false, store.Inbox{}, nil)
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
					for round := 1; left.Add(-1) >= 0; round++ {
						// Each owner has entities of its own, spread over the table.
						ids := make([]string, events)
						for i := range ids {
							n := ((round*events+i)*7919%(benchEntities/owners))*owners + owner
							ids[i] = "banana-" + strconv.Itoa(n)
						}
						err := s.Decide(b.Context(), store.Decision{Revision: revision.Number, Entities: ids,
							Moves: []store.WatermarkStep{{Partition: p, From: from, To: from + int64(events), Token: token}},
						}, func(loaded store.Loaded) (store.Outcome, error) {
							entities := loaded.Entities
							out := store.Outcome{Entities: entities, Frames: []store.Frame{{Partition: p, To: change.NewVersion(1, from+int64(events)), Body: make([]byte, 300*changed*events)}}}
							for i := range entities {
								entities[i].Docs = docs
								for service := range int32(changed) {
									entities[i].States.Set(store.Row{Key: store.Key{Service: service}, Content: benchContent(round), Version: change.Version(round)})
								}
							}
							return out, nil
						})
						if err != nil {
							b.Error(err)
							return
						}
						from += int64(events)
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)*float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkSwap(b *testing.B) {
	storetest.BenchmarkSwap(b, func(b *testing.B) store.Store {
		s, _ := migrated(b)
		return s
	})
}

// A swap writes what moved, however many services there are.
func TestSwapWritesWhatMoved(t *testing.T) {
	written := func(services int) int {
		s, _ := migrated(t)
		revision, err := s.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		_, err = s.pool.Exec(t.Context(), `INSERT INTO watermarks (generation, partition, next_offset, last_to, token, doubt) VALUES (1, 0, 1 << 30, 0, '', 0)`)
		require.NoError(t, err)
		_, err = s.TakeProgress(t.Context(), []int32{0}, store.Token{'t'})
		require.NoError(t, err)
		next := storetest.Swaps(services, store.Token{'t'})
		least := 1 << 30
		for i := range 12 { // the least: the first change of a page after a checkpoint writes all of it
			var c progressColumns
			swap := next()
			c.add(&swap)
			lines, err := list(t.Context(), s.pool, scanValue[string], "EXPLAIN (ANALYZE, WAL) "+sqlSwapProgress, revision.Number, c.partitions, c.old, c.tokens, c.positions, c.tops,
				c.markPartitions, c.services, c.marks)
			require.NoError(t, err)
			sum := 0
			for _, line := range lines {
				if _, after, ok := strings.Cut(line, "bytes="); ok && strings.Contains(line, "WAL:") {
					n, err := strconv.Atoi(strings.TrimSpace(after))
					require.NoError(t, err)
					sum += n
				}
			}
			if i > 1 {
				least = min(least, sum)
			}
		}
		all, err := s.AllProgress(t.Context())
		require.NoError(t, err)
		require.Len(t, all[0].Positions, services)
		require.NotEmpty(t, all[0].Positions[services-1].Mark)
		return least
	}
	few, many := written(5), written(500)
	t.Logf("%d and %d bytes of WAL", few, many)
	require.LessOrEqual(t, many, 2*few)
}
