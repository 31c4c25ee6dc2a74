package linearizable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// entryKind is what happened.
type entryKind string

const (
	began   entryKind = "began"   // an operation on the store
	ended   entryKind = "ended"   // it came back
	nothing entryKind = "nothing" // it came back and certainly wrote nothing
	handed  entryKind = "handed"  // an inbox record was handed to the decider
	decided entryKind = "decided" // the decider says that it is decided
	taken   entryKind = "taken"   // a partition was taken over: all before Next is decided
	sent    entryKind = "sent"    // the decider handed a change over
)

// entry is one line of a process's log.
type entry struct {
	Kind      entryKind
	Tick      int64
	Operation int64 // of began and what ends it, unique in its process
	Input     *input
	Output    *output
	Partition int32 // of handed, decided, taken
	Offset    int64
	Next      int64
	Entity    string // of sent
	Version   change.Version
	Content   change.Content
	Client    int
}

// settings of one process, handed to it by its parent.
type settings struct {
	URL      string // of PostgreSQL
	Clock    string // file
	Process  int
	Seed     uint64 // of the inbox, the same for all
	Records  int    // per partition of the inbox
	Clients  int
	Calls    int // per client
	Pace     int // calls of a client while the whole inbox is decided
	Service  int32
	Revision int64
	Defect   defect
	Together int // processes that begin together
}

// process is one owner, so it believes, of the whole inbox, and its clients.
type process struct {
	settings
	store  store.Store
	now    func() int64
	log    func(entry) // any goroutine
	gather func()      // returns when the processes begin
	calls  atomic.Int64

	mu sync.Mutex
	// known is, per partition, how much is decided as far as this process knows;
	// reached[n] is closed when n records are known to be.
	known   [partitions]int64
	reached []chan struct{}
}

// learned notes that all records of a partition before next are decided.
func (p *process) learned(partition int32, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.known[partition] < next; p.known[partition]++ {
		done := int64(1)
		for _, n := range p.known {
			done += n
		}
		close(p.reached[done])
	}
}

// run decides the whole inbox, or finds it decided, and lets the clients make
// their calls.
func (p *process) run(ctx context.Context) error {
	p.reached = make([]chan struct{}, partitions*p.Records+1)
	for n := range p.reached {
		p.reached[n] = make(chan struct{})
	}
	close(p.reached[0])
	plan, err := plan(p.Service, p.Revision)
	if err != nil {
		return err
	}
	log, err := topic(p.Seed, p.Records)
	if err != nil {
		return err
	}
	decider := decide.New(decide.Options{
		Store: watched{p.store, p}, Plan: plan, Inbox: store.Inbox{Generation: generation, Topic: topicID, TopicID: topicID, Partitions: partitions},
		HandOver:  p.sent,
		MaxEvents: 4, Cache: 1 << 20, FaultInjection: decide.FaultInjection{KeepTakeOver: p.Defect == oldMemory, KeepUnclear: p.Defect == oldMemory}, RetakeDelay: time.Duration(3+2*p.Process) * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Metrics: decide.NewMetrics(prometheus.NewRegistry()),
	})
	p.gather()
	deciding, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- decider.Run(deciding) }()
	work, ctx := errgroup.WithContext(ctx)
	for n := range p.Clients {
		c := &client{process: p, number: n, random: p.random(n)}
		work.Go(func() error { return c.run(ctx) })
	}
	for n, records := range log {
		work.Go(func() error { return p.feed(ctx, decider, int32(n), records) })
	}
	err = work.Wait()
	stop()
	return errors.Join(err, <-ended)
}

// begin logs the beginning of operations and returns what logs their end.
func (p *process) begin(client int, ins []input) func(entryKind, []output) {
	first := p.calls.Add(int64(len(ins))) - int64(len(ins)) + 1
	tick := p.now()
	for i := range ins {
		p.log(entry{Kind: began, Tick: tick, Operation: first + int64(i), Input: &ins[i], Client: client})
	}
	return func(k entryKind, outs []output) {
		tick := p.now()
		for i := range ins {
			e := entry{Kind: k, Tick: tick, Operation: first + int64(i)}
			if k == ended {
				e.Output = &outs[i]
			}
			p.log(e)
		}
	}
}

// random is one goroutine's source of chance.
func (p *process) random(n int) *rand.Rand {
	return rand.New(rand.NewPCG(p.Seed, uint64(p.Process)<<32|uint64(n)))
}

// frameRecords is the most records in a frame: more than one decision takes of
// several frames.
const frameRecords = 6

// feed hands a partition's records to the decider as a subscription does,
// which is revoked and assigned again now and then, until all are decided.
func (p *process) feed(ctx context.Context, d *decide.Decider, partition int32, records []input) error {
	random := p.random(-1 - int(partition))
	for {
		starts, err := d.Assigned(ctx, topicID, []int32{partition})
		if err != nil {
			return fmt.Errorf("assign: %w", err)
		}
		start := starts[partition]
		p.log(entry{Kind: taken, Partition: partition, Next: start, Tick: p.now()})
		p.learned(partition, start)
		rest := records[start:]
		if len(rest) == 0 {
			return nil
		}
		whole := true
		if n := 5 + random.IntN(30); n < len(rest) {
			rest, whole = rest[:n], false
		}
		if err := p.subscription(ctx, d, partition, rest, whole, random); err != nil {
			return err
		}
	}
}

// subscription hands records in as frames, one after the other. Unless whole it
// ends by a revocation while the last frame is under way, whose outcome it does
// not know then.
func (p *process) subscription(ctx context.Context, d *decide.Decider, partition int32, records []input, whole bool, random *rand.Rand) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	assignment := transport.NextAssignment()
	for len(records) > 0 {
		n := min(len(records), 1+random.IntN(frameRecords))
		frame, err := frameOf(records[:n], partition, assignment)
		if err != nil {
			return err
		}
		records = records[n:]
		for _, r := range frame.Records {
			p.log(entry{Kind: handed, Partition: partition, Offset: r.Offset, Tick: p.now()})
		}
		answer := make(chan error, 1)
		go func() { answer <- d.Handle(transport.NewMessage(ctx, frame)) }()
		if len(records) == 0 && !whole {
			d.Revoked(topicID, []int32{partition})
			cancel()
			// It must have ended when the next assignment begins.
			<-answer //nolint:errcheck // its outcome is unknown to the process on purpose
			return nil
		}
		if err := <-answer; err != nil {
			return fmt.Errorf("records %d to %d of partition %d: %w", frame.First(), frame.Last(), partition, err)
		}
		tick := p.now()
		for _, r := range frame.Records {
			p.log(entry{Kind: decided, Partition: partition, Offset: r.Offset, Tick: tick})
		}
		p.learned(partition, frame.Last()+1)
	}
	d.Revoked(topicID, []int32{partition})
	return nil
}

// sent logs the changes of a frame.
func (p *process) sent(f *store.Frame) {
	changes, err := changesOf(f.Body)
	if err != nil {
		panic(err) // decide made it
	}
	for _, c := range changes {
		p.log(entry{Kind: sent, Entity: c.Entity, Version: c.Version, Content: c.Content})
	}
}

// changesOf reads a frame.
func changesOf(record []byte) (all []change.Change, err error) {
	f, err := change.ParseFrame(record)
	if err != nil {
		return nil, err
	}
	for i := range f.Slices {
		for c, err := range f.Slices[i].All(service) {
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// watched logs the decider's writes of watermarks. A worker has one partition.
type watched struct {
	store.Store
	p *process
}

// owners is the client number of deciders.
const owners = 1 << 15

func (w watched) TakeOver(ctx context.Context, all []store.Partition, token store.Token) ([]store.TakenOver, error) {
	ins := make([]input, len(all))
	for i, p := range all {
		ins[i] = input{Kind: takeOver, Entity: watermark(p), Token: token}
	}
	end := w.p.begin(owners, ins)
	found, err := w.Store.TakeOver(ctx, all, token)
	if err == nil { // otherwise it may have been written
		outs := make([]output, len(found))
		for i, f := range found {
			outs[i].Next = f.NextOffset
		}
		end(ended, outs)
	}
	return found, err
}

func (w watched) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	ins := make([]input, len(d.Moves))
	for i, m := range d.Moves {
		ins[i] = input{Kind: advance, Entity: watermark(m.Partition), Token: m.Token, From: m.From, To: m.To}
	}
	end := w.p.begin(owners, ins)
	err := w.Store.Decide(ctx, d, decide)
	outs := make([]output, len(ins))
	for i := range outs {
		outs[i] = output{Passed: err == nil}
	}
	switch {
	case err == nil || errors.Is(err, store.ErrFenced):
		end(ended, outs)
	case store.ClassOf(err) != store.Unknown:
		end(nothing, nil)
	}
	return err
}
