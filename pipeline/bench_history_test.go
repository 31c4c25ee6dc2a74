package pipeline

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkHistory compares the processor time of a delivery to webhooks with what
// it is while attempts are kept, in turns: cpu-us/delivery is this process and
// PostgreSQL, the customer's server included, which does as little as it can. One
// operation is one run over -events events, as in BenchmarkEndToEnd.
func BenchmarkHistory(b *testing.B) {
	for _, place := range []struct {
		name string
		make func(b *testing.B, dir string) world
	}{
		{"embedded", embeddedWorld},
		{"servers", func(b *testing.B, _ string) world { return realWorld(b, "kafka") }},
	} {
		for turn := range 6 {
			keep := []string{"0s", "7d"}[turn%2]
			b.Run(fmt.Sprintf("%s/keep=%s", place.name, keep), func(b *testing.B) {
				dir := b.TempDir()
				w := place.make(b, dir)
				w.main += "history: {keep: " + keep + "}\n"
				w.sink = hook(answering(b))
				s := newStream(sparse, *benchEntities, 5)
				if w.prepare != nil {
					w.prepare(b, s.services)
				}
				var total run
				for b.Loop() {
					b.StopTimer()
					if s.n == 0 {
						w.fill(b, s.first())
						measure(b, dir, w, s, nil) // the warm-up
					}
					w.fill(b, s.more(*benchEvents))
					measure(b, dir, w, s, &total)
					b.StartTimer()
				}
				used := total.cpu["weir"] + total.cpu["postgres"]
				b.ReportMetric(float64(used.Microseconds())/float64(total.sent), "cpu-us/delivery")
				b.ReportMetric(float64(total.sent)/total.took.Seconds(), "delivered/s")
			})
		}
	}
}

// answering is a customer's server that accepts everything, at little cost.
func answering(b *testing.B) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					if _, err := r.ReadSlice('\n'); err != nil {
						return
					}
					header, err := textproto.NewReader(r).ReadMIMEHeader()
					if err != nil {
						return
					}
					n, _ := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
					_, _ = io.CopyN(io.Discard, r, n)
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"ok\":true,\"id\":12345}")
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/hook"
}
