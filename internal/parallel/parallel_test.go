package parallel

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// processors sets how many goroutines run at once, for one test.
func processors(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestEveryItemIsHandledOnce(t *testing.T) {
	processors(t, 5)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 10*chunk).Draw(t, "n")
		calls := make([]atomic.Int32, n)
		Do(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			require.EqualValues(t, 1, calls[i].Load(), i)
		}
	})
}

// With enough items two calls are under way at once; each waits for the other.
func TestManyItemsAreHandledAtOnce(t *testing.T) {
	processors(t, 2)
	met := make(chan struct{})
	Do(2*chunk, func(i int) {
		switch i {
		case 0:
			met <- struct{}{}
		case chunk:
			<-met
		}
	})
}

// Few items are not worth a goroutine: they are handled in their order.
func TestFewItemsAreHandledByTheCaller(t *testing.T) {
	processors(t, 4)
	var order []int
	Do(2*chunk-1, func(i int) { order = append(order, i) })
	require.Len(t, order, 2*chunk-1)
	require.IsIncreasing(t, order)
}

// A caller that recovers from panics, as the router does, recovers from those
// of all goroutines.
func TestPanicReachesTheCaller(t *testing.T) {
	processors(t, 4)
	for _, n := range []int{1, 4 * chunk} {
		func() {
			defer func() {
				v := recover()
				require.NotNil(t, v)
				require.Contains(t, v, "item 0")
			}()
			Do(n, func(i int) {
				if i == 0 {
					panic("item 0")
				}
			})
			require.Fail(t, "no panic")
		}()
	}
}
