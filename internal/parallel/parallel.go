// Package parallel spreads the items of one batch over the processors.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// chunk is how many items are worth a goroutine.
const chunk = 64

// Do calls f for 0 to n-1, from several goroutines when there are enough items, and returns when
// all calls have returned. A panic of f is passed on to the caller, who may recover from it. Some
// items may not have been handled then.
func Do(n int, f func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n/chunk)
	if workers < 2 {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	var panicked atomic.Pointer[string]
	for w := range workers {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					text := fmt.Sprintf("%v\n%s", v, debug.Stack()) // the caller's stack does not show it
					panicked.CompareAndSwap(nil, &text)
				}
			}()
			for i := n * w / workers; i < n*(w+1)/workers; i++ {
				f(i)
			}
		})
	}
	wg.Wait()
	if text := panicked.Load(); text != nil {
		panic(*text)
	}
}
