package transport_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

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
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "snappy": kgo.SnappyCompression()} {
		for _, batch := range []int{1000, 100} {
			b.Run(fmt.Sprintf("%s/batches of %d", name, batch), func(b *testing.B) {
				c := realCluster(b)
				topic := c.topic(b, "topic", 8)
				p := c.producer(b, transport.ProducerConfig{Compression: codec})
				records := benchRecords(topic, batch)
				b.ResetTimer()
				errs := make(chan error, b.N/batch+1)
				calls := 0
				for n := 0; n < b.N; n += batch {
					p.AppendAsync(b.Context(), new(transport.Sequence), records, func(err error) { errs <- err })
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
func BenchmarkConsumeOnePartition(b *testing.B) { benchConsume(b, []byte("one")) }

func BenchmarkConsume(b *testing.B) { benchConsume(b, nil) }

// benchConsume compares frames with one record at a time, through a router as
// a stage does it. The records have a key each, or all the same. Ask for more
// of them than the buffer takes: -benchtime 1000000x.
func benchConsume(b *testing.B, key []byte) {
	for _, records := range []int{1000, 1} {
		b.Run(fmt.Sprintf("frames of %d", records), func(b *testing.B) {
			c := realCluster(b)
			topic := c.topic(b, "topic", 8)
			p := c.producer(b, transport.ProducerConfig{})
			for n := 0; n < b.N; n += 50_000 {
				all := benchRecords(topic, min(50_000, b.N-n))
				for i := range all {
					if key != nil {
						all[i].Key = key
					}
				}
				if err := p.Append(b.Context(), all); err != nil {
					b.Fatal(err)
				}
			}
			g := c.group(b, transport.GroupConfig{Topic: topic, FrameRecords: records})
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			if err != nil {
				b.Fatal(err)
			}
			joined, start, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			join := sync.OnceFunc(func() { close(joined) })
			var seen, frames atomic.Int64
			router.AddConsumerHandler("count", topic, g.Subscriber(), func(m *message.Message) error {
				join()
				<-start
				f, _ := transport.FrameOf(m)
				frames.Add(1)
				if n := seen.Add(int64(len(f.Records))); n == int64(b.N) {
					close(done)
				}
				return nil
			})
			ended := make(chan error, 1)
			go func() { ended <- router.Run(b.Context()) }()
			<-joined
			b.ReportAllocs()
			b.ResetTimer()
			close(start) // what the buffer takes is there by then
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N)/float64(frames.Load()), "records/frame")
			if err := errors.Join(router.Close(), <-ended); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// One record at a time, the next after the answer to the one before: the cost of a
// frame of one record.
func BenchmarkLatency(b *testing.B) {
	c := realCluster(b)
	topic := c.topic(b, "topic", 8)
	p := c.producer(b, transport.ProducerConfig{})
	ch := subscribe(b, c.group(b, transport.GroupConfig{Topic: topic}), topic)
	records := benchRecords(topic, 1)
	for i := range b.N + 1 {
		if i == 1 { // joined
			b.ResetTimer()
		}
		if err := p.Append(b.Context(), records); err != nil {
			b.Fatal(err)
		}
		(<-ch).Ack()
	}
}
