package linearizable

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// checkVariable holds the settings of a process that checks; set, the test
// binary is one.
const checkVariable = "WEIR_LINEARIZABLE_CHECKS"

// checkSettings of one process, handed to it by its parent.
type checkSettings struct {
	URL     string // of PostgreSQL; otherwise
	File    string // of SQLite
	Clock   string // file
	Process int
	Seed    uint64
	Clients int
	Calls   int // per client
	Writers int // calls on one entity at a time
	Service int32
	Blind   bool // swap without comparing the revision

	Together int // processes that begin together
}

// checkEntry is one line of a process's log.
type checkEntry struct {
	Kind      entryKind // began, ended, nothing
	Tick      int64
	Operation int64
	Client    int
	Ask       ask
	Reply     reply
}

// workChecks is a process of the test.
func workChecks(text string) error {
	var s checkSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	c, err := openClock(s.Clock)
	if err != nil {
		return err
	}
	ctx := context.Background()
	used, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer used.Close()
	var rows store.CheckRows = used
	if s.Blind {
		rows = blind{used}
	}
	var mu sync.Mutex
	out := gob.NewEncoder(os.Stdout)
	p := &checkProcess{checkSettings: s, now: c.now, log: func(e checkEntry) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(e); err != nil { // the parent is gone
			os.Exit(1)
		}
	}}
	// The clock does not move, so that a version is one more than the last.
	p.checker = checks.New(checks.Options{Store: rows, Now: func() time.Time { return time.UnixMicro(0) }})
	defer p.checker.Close(ctx)
	c.gather(s.Together)
	return p.run(ctx)
}

func (s checkSettings) open(ctx context.Context) (checkStore, error) {
	if s.File != "" {
		return sqlite.Open(ctx, sqlite.Options{Path: s.File})
	}
	return postgres.Open(ctx, postgres.Options{URL: s.URL, MaxConns: 4})
}

// blind is a store that swaps without regard to other writes since the read.
type blind struct{ checkStore }

// checkStore is the part of a store that a process of the test uses.
type checkStore interface {
	store.CheckRows
	Services(ctx context.Context, names []string) (map[string]int32, error)
	Migrate(ctx context.Context) error
	Close() error
}

func (b blind) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	if err := others(ctx); err != nil {
		return nil, err
	}
	var keys []store.Key
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	found, err := b.CheckRows(ctx, keys)
	if err != nil {
		return nil, err
	}
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Revision = found[i].Revision
	}
	return b.checkStore.SwapCheckRows(ctx, rows)
}

type checkProcess struct {
	checkSettings
	checker *checks.Checker
	now     func() int64
	log     func(checkEntry)
	calls   atomic.Int64
	writing [entities]chan struct{} // room for Writers
}

func (p *checkProcess) run(ctx context.Context) error {
	for n := range p.writing {
		p.writing[n] = make(chan struct{}, p.Writers)
	}
	work, ctx := errgroup.WithContext(ctx)
	for n := range p.Clients {
		c := &checkClient{checkProcess: p, number: n, learned: map[string][]int64{}, asked: map[string]string{},
			random: rand.New(rand.NewPCG(p.Seed, uint64(p.Process)<<32|uint64(n)))}
		work.Go(func() error {
			for range p.Calls {
				if err := c.call(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// checkClient makes one call after the other.
type checkClient struct {
	*checkProcess
	number  int
	random  *rand.Rand
	learned map[string][]int64 // versions that it was answered, per entity
	asked   map[string]string  // what it asked for last
	done    int                // calls
	next    []ask              // what it asks next, as a caller that does its work would
}

func (c *checkClient) service() checks.Service {
	return checks.Service{Name: "acme/crm@check", Number: c.Service}
}

// call asks about one or two entities; each is an operation.
func (c *checkClient) call(ctx context.Context) error {
	c.done++
	if c.random.IntN(40) == 0 { // the caller goes away in the middle of it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.random.IntN(4000))*time.Microsecond)
		defer cancel()
	}
	targets, kind, ins := c.choose()
	for _, n := range targets {
		c.writing[n] <- struct{}{}
	}
	defer func() {
		for _, n := range targets {
			<-c.writing[n]
		}
	}()
	first := c.calls.Add(int64(len(ins))) - int64(len(ins)) + 1
	tick := c.now()
	for i, in := range ins {
		c.log(checkEntry{Kind: began, Tick: tick, Operation: first + int64(i), Client: c.number, Ask: in})
	}
	outs, errs, err := c.send(ctx, kind, ins)
	if err != nil {
		return err
	}
	tick = c.now()
	for i := range ins {
		e := checkEntry{Kind: ended, Tick: tick, Operation: first + int64(i), Client: c.number, Reply: outs[i]}
		switch err := errs[i]; {
		case errors.Is(err, checks.ErrContended):
			e.Kind = nothing
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
			continue // open
		case err != nil && store.ClassOf(err) == store.Unknown:
			continue
		case err != nil && store.ClassOf(err) == store.Retry:
			e.Kind = nothing
		case err != nil:
			return fmt.Errorf("%s: %w", kind, err)
		}
		c.log(e)
		if e.Kind == ended && outs[i].Version > 0 {
			c.learned[ins[i].Entity] = append(c.learned[ins[i].Entity], outs[i].Version)
			if outs[i].Decision == string(checks.Pass) {
				c.follow(ins[i], outs[i].Version)
			}
		}
	}
	return nil
}

// choose returns the next call: what follows from the last answer, or chance.
func (c *checkClient) choose() (targets []int, kind askKind, ins []ask) {
	if len(c.next) > 0 {
		in := c.next[0]
		c.next = c.next[1:]
		for n := range entities {
			if entity(n) == in.Entity {
				return []int{n}, in.Kind, []ask{in}
			}
		}
	}
	targets = c.random.Perm(entities)[:1+c.random.IntN(5)/4]
	slices.Sort(targets) // in one order: no two wait for one another
	kind = asks
	switch c.random.IntN(10) {
	case 0, 1:
		kind = confirms
	case 2:
		kind = gives
	}
	for _, n := range targets {
		ins = append(ins, c.ask(kind, entity(n)))
	}
	return targets, kind, ins
}

// follow plans the next call of a caller whose check passed.
func (c *checkClient) follow(in ask, version int64) {
	switch c.random.IntN(4) {
	case 0, 1: // sent, and later somebody asks again
		c.next = append(c.next, ask{Kind: confirms, Entity: in.Entity, Version: version}, ask{Kind: asks, Entity: in.Entity, Content: in.Content})
	case 2: // not sent
		c.next = append(c.next, ask{Kind: gives, Entity: in.Entity, Version: version, Refused: c.random.IntN(2) == 0})
	}
}

// ask makes a request: mostly few contents and events, so that they meet.
func (c *checkClient) ask(kind askKind, entity string) ask {
	in := ask{Kind: kind, Entity: entity}
	if kind != asks {
		in.Refused = c.random.IntN(2) == 0
		in.Version = 1 << 50 // never given
		if known := c.learned[entity]; len(known) > 0 && c.random.IntN(12) > 0 {
			in.Version = known[max(0, len(known)-1-c.random.IntN(8)/6)]
		}
		return in
	}
	switch dice := c.random.IntN(8); {
	case dice < 3 && c.asked[entity] != "":
		in.Content = c.asked[entity]
	case dice < 6:
		in.Content = string(rune('A' + c.random.IntN(2)))
	default: // one of its own tells porcupine most
		in.Content = fmt.Sprint("own ", c.Process, c.number, c.done)
	}
	c.asked[entity] = in.Content
	if c.random.IntN(2) == 0 {
		in.Event = fmt.Sprint("e", c.random.IntN(12))
	}
	if c.random.IntN(4) == 0 {
		in.Sequence = 1 + c.done*4 + c.random.IntN(12)
	}
	return in
}

// send calls the Checker.
func (c *checkClient) send(ctx context.Context, kind askKind, ins []ask) (outs []reply, errs []error, err error) {
	outs, errs = make([]reply, len(ins)), make([]error, len(ins))
	switch kind {
	case asks:
		var all []checks.Request
		for _, in := range ins {
			r := checks.Request{Entity: in.Entity, Content: checks.Given(in.Content), EventID: in.Event}
			if in.Sequence != 0 {
				r.Sequence = strconv.Itoa(in.Sequence)
			}
			all = append(all, r)
		}
		results, err := c.checker.Check(ctx, c.service(), all)
		for i, r := range results {
			outs[i], errs[i] = reply{Decision: string(r.Value.Decision), Version: int64(r.Value.Version), Repeated: r.Value.Repeated}, r.Err
		}
		return outs, errs, err
	case confirms:
		var all []checks.Confirmation
		for _, in := range ins {
			all = append(all, checks.Confirmation{Entity: in.Entity, Version: change.Version(in.Version)})
		}
		results, err := c.checker.Confirm(ctx, c.service(), all)
		for i, r := range results {
			outs[i], errs[i] = reply{Version: int64(r.Value)}, r.Err
		}
		return heard(outs, errs), errs, err
	}
	var all []checks.Failure
	for _, in := range ins {
		outcome := checks.Unknown
		if in.Refused {
			outcome = checks.Refused
		}
		all = append(all, checks.Failure{Entity: in.Entity, Version: change.Version(in.Version), Outcome: outcome})
	}
	results, err := c.checker.Release(ctx, c.service(), all)
	for i, r := range results {
		outs[i], errs[i] = reply{Done: r.Value.Done, Known: r.Value.Known, Version: int64(r.Value.Version)}, r.Err
	}
	return heard(outs, errs), errs, err
}

// heard turns ErrUnknownVersion, which is an answer, into one.
func heard(outs []reply, errs []error) []reply {
	for i, err := range errs {
		if errors.Is(err, checks.ErrUnknownVersion) {
			outs[i], errs[i] = reply{Unheard: true}, nil
		}
	}
	return outs
}
