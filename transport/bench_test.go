package transport_test

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/transport"
)

const benchSize = 200 // bytes per message, as in the measurements of the decision

func benchRecords(topic string, n int) []transport.Record {
	records := make([]transport.Record, n)
	for i := range records {
		v := make([]byte, benchSize)
		for j := range v { // about as compressible as JSON
			v[j] = "abcdefghijklmnop\"{}:,0123456789 "[(i*7+j*(j+i%13))%32]
		}
		records[i] = transport.Record{Topic: topic, Key: []byte(fmt.Sprint(i)), Value: v}
	}
	return records
}

func BenchmarkProduce(b *testing.B) {
	for _, codec := range []transport.Compression{transport.NoCompression, transport.LZ4, transport.Snappy} {
		for _, batch := range []int{1000, 100} {
			b.Run(fmt.Sprintf("%s/batches of %d", codec, batch), func(b *testing.B) {
				c := realCluster(b)
				topic := c.topic(b, "topic", 8)
				p := c.producer(b, transport.ProducerConfig{Compression: codec})
				records := benchRecords(topic, batch)
				b.ResetTimer()
				errs := make(chan error, b.N/batch+1)
				calls := 0
				for n := 0; n < b.N; n += batch {
					p.AppendAsync(b.Context(), records, func(err error) { errs <- err })
					calls++
				}
				for range calls {
					if err := <-errs; err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// One busy partition among idle ones, which hold a fetch up.
func BenchmarkConsumeOnePartition(b *testing.B) {
	for _, window := range []int{1000, 1} {
		b.Run(fmt.Sprintf("window %d", window), func(b *testing.B) {
			c := realCluster(b)
			topic := c.topic(b, "topic", 8)
			p := c.producer(b, transport.ProducerConfig{})
			for n := 0; n < b.N; n += 50_000 {
				records := benchRecords(topic, min(50_000, b.N-n))
				for i := range records {
					records[i].Key = []byte("one")
				}
				if err := p.Append(b.Context(), records); err != nil {
					b.Fatal(err)
				}
			}
			consume(b, c, topic, window)
		})
	}
}

func BenchmarkConsume(b *testing.B) {
	for _, window := range []int{1000, 1} {
		b.Run(fmt.Sprintf("window %d", window), func(b *testing.B) {
			c := realCluster(b)
			topic := c.topic(b, "topic", 8)
			p := c.producer(b, transport.ProducerConfig{})
			for n := 0; n < b.N; n += 50_000 {
				if err := p.Append(b.Context(), benchRecords(topic, min(50_000, b.N-n))); err != nil {
					b.Fatal(err)
				}
			}
			consume(b, c, topic, window)
		})
	}
}

func consume(b *testing.B, c cluster, topic string, window int) {
	g := c.group(b, transport.GroupConfig{Topics: []string{topic}, Window: window})
	ch, err := g.Subscriber().Subscribe(b.Context(), topic)
	if err != nil {
		b.Fatal(err)
	}
	(<-ch).Ack() // joined
	b.ResetTimer()
	for range b.N - 1 {
		(<-ch).Ack()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
