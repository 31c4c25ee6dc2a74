package postgres

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// reads measures how long a reader takes for n events into an inbox that costs nothing.
func reads(b *testing.B, s *shop, n int) {
	r := NewReader(s.options, map[string]string{"public.orders": "orders"})
	source := r.Source("public.orders")
	b.ResetTimer()
	messages, err := source.Subscribe(b.Context(), "")
	if err != nil {
		b.Fatal(err)
	}
	for m := range messages {
		f, _ := transport.FrameOf(m)
		n -= len(f.Records)
		m.Ack()
		if n <= 0 {
			break
		}
	}
	b.StopTimer()
	go func() {
		for m := range messages {
			m.Ack()
		}
	}()
	_ = source.Close()
}

const orders = "CREATE TABLE orders (id int PRIMARY KEY, state text, total numeric, at timestamptz DEFAULT now(), tags text[], doc jsonb)"

const someOrders = "INSERT INTO orders SELECT n, 'new', n * 1.25, now(), '{a,b}', '{\"a\":1}' FROM generate_series(1, %d) n"

// BenchmarkRows reads b.N rows.
func BenchmarkRows(b *testing.B) {
	s := newShop(b, ownServer(b), map[string][]string{"public.orders": {"id"}}, orders, fmt.Sprintf(someOrders, b.N), "ANALYZE")
	reads(b, s, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkChanges reads b.N changes of transactions of up to 10.
func BenchmarkChanges(b *testing.B) {
	s := newShop(b, ownServer(b), map[string][]string{"public.orders": {"id"}}, orders)
	r := s.start() // changes below the rows are left out
	s.drain(r)
	r.stop()
	s.exec(fmt.Sprintf("DO $$ BEGIN FOR i IN 0..%d LOOP INSERT INTO orders SELECT i * 10 + n, 'new', n * 1.25, now(), '{a,b}', '{}' FROM generate_series(1, 10) n; COMMIT; END LOOP; END $$", (b.N-1)/10))
	reads(b, s, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}
