package transport

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reader reads partitions of one topic at offsets that its caller names, outside of any group, to
// catch up. Calls that continue where the one before ended share a fetch session, which fetches
// ahead. A jump within the partition keeps the connections, and another partition opens new ones.
// Not for concurrent use.
type Reader struct {
	cfg   Config
	topic string
	bytes int

	cl        *kgo.Client // nil without a session
	partition int32
	next      int64 // the session's position
	// seekable says that the client has fetched from the partition. Only then it accepts another
	// offset.
	seekable bool
	fetched  []*kgo.Record // from next on
	answers  answers
}

// answers notes whether brokers answer fetches: without it an unreachable cluster would
// look like the end of a log.
type answers struct{ came atomic.Bool }

var _ kgo.HookBrokerRead = (*answers)(nil)

// OnBrokerRead is called by the client for every response.
func (a *answers) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil && key == int16(kmsg.Fetch) {
		a.came.Store(true)
	}
}

var errNoAnswer = errors.New("the cluster does not answer for this topic")

// NewReader does not touch the network. bytes bounds the size of the records that one Read
// returns. 0 means 1 MiB.
func NewReader(cfg Config, topic string, bytes int) *Reader {
	def(&bytes, 1<<20)
	return &Reader{cfg: cfg, topic: topic, bytes: bytes}
}

// Read returns records of a partition from offset on, in their order: at least one, and so many
// as fit into the bound. A larger record comes alone. It waits for them until ctx ends. Where
// retention removed records it continues with the oldest one: the first record has a higher
// offset than asked for then, as it may where records were compacted or at markers of
// transactions. Behind the end of the log, also of one that became shorter, it waits. The error
// is that of ctx when there was nothing to read, and another one when the cluster did not answer,
// which takes up to readerWait, or refused. The next call tries again.
func (r *Reader) Read(ctx context.Context, partition int32, offset int64) ([]Received, error) {
	var trouble error
	r.answers.came.Store(false)
	for try := 0; ; try++ {
		err := r.seek(partition, offset)
		for err == nil && len(r.fetched) == 0 {
			err = r.poll(ctx)
		}
		if err == nil {
			return r.take(), nil
		}
		if ctx.Err() == nil {
			r.Close() // whatever it is: a new session knows nothing of it
			trouble = err
			if errors.Is(err, kerr.OffsetOutOfRange) {
				offset, trouble = r.existing(ctx, partition, offset)
			}
		}
		if !wait.Sleep(ctx, retryBackoff(try)) {
			if trouble == nil {
				if trouble = errNoAnswer; r.answers.came.Load() {
					trouble = ctx.Err()
				}
			}
			return nil, fmt.Errorf("read topic %s, partition %d from %d: %w", r.topic, partition, offset, trouble)
		}
	}
}

// Close ends the session. The Reader can be used again.
func (r *Reader) Close() {
	if r.cl != nil {
		r.cl.Close()
	}
	r.cl, r.fetched, r.seekable = nil, nil, false
}

// seek moves the session to an offset.
func (r *Reader) seek(partition int32, offset int64) error {
	if r.cl != nil && r.partition == partition {
		if offset >= r.next { // a short way forward may be fetched already
			i := 0
			for i < len(r.fetched) && r.fetched[i].Offset < offset {
				i++
			}
			if r.fetched = r.fetched[i:]; len(r.fetched) > 0 || offset == r.next {
				r.next = offset
				return nil
			}
		}
		if r.seekable {
			r.fetched, r.next = nil, offset
			// It discards fetches under way and records fetched ahead.
			r.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.topic: {partition: {Epoch: -1, Offset: offset}}})
			return nil
		}
	}
	r.Close()
	most := int32(min(max(r.bytes, minFetch), maxFetch))
	cl, err := newClient(r.cfg,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: {partition: kgo.NewOffset().At(offset)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // a deleted offset arrives as an error
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(readerWait), kgo.WithHooks(&r.answers),
		kgo.FetchMaxBytes(most), kgo.FetchMaxPartitionBytes(most),
	)
	if err != nil {
		return err
	}
	r.cl, r.partition, r.next = cl, partition, offset
	return nil
}

// readerWait is how long a broker holds a fetch that finds nothing: a jump that
// follows waits for it.
const readerWait = 100 * time.Millisecond

// poll waits for one fetch.
func (r *Reader) poll(ctx context.Context) error {
	fetches := r.cl.PollFetches(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	var failed error
	fetches.EachError(func(_ string, _ int32, err error) { failed = err })
	if failed != nil {
		return failed
	}
	for it := fetches.RecordIter(); !it.Done(); {
		if rec := it.Next(); rec.Offset >= r.next {
			r.fetched = append(r.fetched, rec)
		}
	}
	r.seekable = r.seekable || len(r.fetched) > 0
	return nil
}

// take returns fetched records up to the bound.
func (r *Reader) take() []Received {
	n, size := 0, 0
	for ; n < len(r.fetched); n++ {
		if size += int(recordSize(r.fetched[n])); n > 0 && size > r.bytes {
			break
		}
	}
	out := make([]Received, n)
	for i, rec := range r.fetched[:n] {
		out[i] = received(rec, true)
	}
	clear(r.fetched[:n]) // or the records would stay as long as those behind them
	r.fetched, r.next = r.fetched[n:], out[n-1].Offset+1
	return out
}

// existing returns the offset to read from when the wanted one has no record.
func (r *Reader) existing(ctx context.Context, partition int32, wanted int64) (int64, error) {
	cl, err := newClient(r.cfg)
	if err != nil {
		return wanted, err
	}
	defer cl.Close()
	l, err := readPartition(ctx, cl, r.topic, partition)
	if err != nil {
		return wanted, err
	}
	if first := l.start[partition]; wanted < first {
		r.cfg.logger().Warn("records expired before they were read; resuming at the oldest", "event", "kafka.records_lost",
			"topic", r.topic, "partition", partition, "wanted", wanted, "got", first)
		return first, nil
	}
	return wanted, nil
}
