package decide

import "unsafe"

// arena is memory for values that a batch keeps until reset. They do not move when more come, as
// the elements of a slice that grows would: their earlier copies would stay in memory with them.
type arena[T any] struct {
	block []T   // in use, with room behind its end
	full  [][]T // of this batch
	free  [][]T // of earlier batches
}

// blockBytes is about the size of a block.
const blockBytes = 64 << 10

// rest returns an empty slice with room for least values, to which the caller appends some.
func (a *arena[T]) rest(least int) []T {
	if cap(a.block)-len(a.block) < least {
		a.next()
	}
	return a.block[len(a.block):]
}

// next begins a block.
func (a *arena[T]) next() {
	if a.block != nil {
		a.full = append(a.full, a.block)
	}
	if n := len(a.free); n > 0 {
		a.block, a.free = a.free[n-1], a.free[:n-1]
		return
	}
	var v T
	a.block = make([]T, 0, blockBytes/unsafe.Sizeof(v))
}

// keep keeps values that were appended to rest. More than the block had room for is in memory of its own.
func (a *arena[T]) keep(values []T) []T {
	if n := len(a.block) + len(values); n <= cap(a.block) {
		a.block = a.block[:n]
	}
	return values[:len(values):len(values)]
}

// reset ends the use of all values, which wipe overwrites, and leaves blocks of up to maxScratch bytes to the
// next batch.
func (a *arena[T]) reset(wipe func([]T)) {
	if a.block != nil {
		a.full = append(a.full, a.block)
	}
	for _, b := range a.full {
		if wipe(b); (len(a.free)+1)*blockBytes <= maxScratch {
			a.free = append(a.free, b[:0])
		}
	}
	clear(a.full)
	a.block, a.full = nil, a.full[:0]
}
