package embedded

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrFull is the error of a disk that has less than the reserve free.
var ErrFull = errors.New("the disk is full")

// Full gives an ErrFull from when the disk of the folder has less than the
// reserve free until it has an eighth of it more; nil otherwise and where the
// free space cannot be found out. It may be called concurrently.
func (b *Broker) Full() error { return b.room(0) }

// Room gives the bytes that are free above the reserve, 0 when none are; false
// where the free space cannot be found out. It may be called concurrently.
func (b *Broker) Room() (bytes int64, ok bool) {
	free, ok := freeSpace(b.dir)
	return max(0, free-max(0, b.reserve)), ok
}

// room gives an ErrFull when that many bytes more would touch the reserve.
func (b *Broker) room(bytes int64) error {
	free, ok := freeSpace(b.dir)
	if b.reserve < 0 || !ok {
		return nil
	}
	b.fullMu.Lock()
	defer b.fullMu.Unlock()
	wanted := b.reserve + bytes
	if b.full {
		wanted += b.reserve / 8 // or it would change with every small request
	}
	if free >= wanted {
		if b.full {
			b.log.Info("going on: the embedded broker has room again")
		}
		b.full = false
		return nil
	}
	err := fmt.Errorf("embedded kafka: %w: %d MiB are free in %s, of which %d MiB are kept in reserve", ErrFull, free>>20, b.dir, b.reserve>>20)
	if !b.full {
		b.log.Warn("halted: the embedded broker takes nothing more until there is room", "error", err)
	}
	b.full = true
	return err
}

// keepReserve refuses to take records that would touch the reserve, with an
// error that clients repeat until it is gone. kfake itself finds out in the
// middle of a write: by then it has noted the producer's sequence, and a
// repetition whose first answer got lost would be acknowledged without being
// written. Reading goes on, and what goes with it fits into the reserve.
func (b *Broker) keepReserve() {
	b.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Err: kerr.KafkaStorageError,
		When: func(r kmsg.Request) bool { return b.room(recordBytes(r.(*kmsg.ProduceRequest))) != nil },
	})
}

func recordBytes(r *kmsg.ProduceRequest) (n int64) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			n += int64(len(p.Records))
		}
	}
	return n
}
