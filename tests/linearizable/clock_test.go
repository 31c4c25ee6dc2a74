package linearizable

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// clock counts ticks for all processes of a test: one counter in a file that
// all of them map.
//
// A counter and not a time: an atomic addition is one point in time for every
// core of the machine, so an operation that ended before another began has the
// smaller tick, with any resolution, steps or drift of the
// machine's clocks, and no two ticks are equal. It outlives processes that are killed.
type clock struct{ ticks, arrived *atomic.Int64 }

// openClock maps the file at path, until the process ends, and creates it when
// it is missing.
func openClock(path string) (clock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return clock{}, err
	}
	defer f.Close()
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		return clock{}, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return clock{}, fmt.Errorf("map the clock: %w", err)
	}
	return clock{ticks: (*atomic.Int64)(unsafe.Pointer(&memory[0])), arrived: (*atomic.Int64)(unsafe.Pointer(&memory[8]))}, nil
}

func (c clock) now() int64 { return c.ticks.Add(1) }

// gather waits until n processes have come here, so that no one of them is done
// before another one has begun: a process that starts late would run alone.
func (c clock) gather(n int) {
	for c.arrived.Add(1); c.arrived.Load() < int64(n); {
		<-time.After(time.Millisecond)
	}
}
