package pipeline

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// BenchmarkManyServices compares the processor time and the memory of an event that concerns
// three services, among 10 to 10,000 of them. One operation is one run over -events events of
// 300 entities: the first event of each is evaluated for all services.
func BenchmarkManyServices(b *testing.B) {
	for _, services := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			dir := b.TempDir()
			w := embeddedWorld(b, dir)
			w.main = "sources:\n  registry:\n    http: {}" + benchSource
			began := usedCPU(b)
			start := time.Now()
			l := startLoad(b, dir, w, newStream(few, 300, services), push, nil)
			b.Logf("start and first events: %v, %v of processor time", time.Since(start), usedCPU(b)["weir"]-began["weir"])
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			used := usedCPU(b)
			for b.Loop() {
				l.offerAll(l.s.more(*benchEvents))
			}
			events := float64(*benchEvents * b.N)
			b.ReportMetric(float64((usedCPU(b)["weir"]-used["weir"]).Microseconds())/events, "cpu-us/event")
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/events/1024, "KiB-allocated/event")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/events, "allocations/event")
			b.ReportMetric(float64(before.HeapAlloc)/1024/float64(services), "KiB-heap/service")
			b.ReportMetric(resident(b, os.Getpid()), "MiB-resident")
		})
	}
}
