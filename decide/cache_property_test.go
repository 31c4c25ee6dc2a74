package decide_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/simulation"
)

// fault is what happens to the next decision.
type fault string

const (
	none      fault = "none"
	refused   fault = "nothing written"
	unknown   fault = "written, the answer is lost"
	lost      fault = "not written, the answer is lost"
	fenced    fault = "fenced"
	elsewhere fault = "another owner takes over meanwhile, and writes"
	reassign  fault = "another owner had it before"
)

// side is an owner over a store of its own.
type side struct {
	*simulation.Memory
	plan    *decide.Plan
	decider *decide.Decider
	used    *prometheus.Registry

	mu   sync.Mutex
	next fault
}

func (s *side) Decide(ctx context.Context, d store.Decision, back func(store.Loaded) (store.Outcome, error)) error {
	s.mu.Lock()
	what := s.next
	if d.Moves[0].From < d.Moves[0].To {
		s.next = none
	} else {
		what = none // the owner is idle
	}
	s.mu.Unlock()
	away := errors.New("away")
	switch what {
	case refused:
		return away
	case fenced:
		return store.ErrFenced
	case elsewhere:
		if err := s.other(ctx, d.Moves[0].Partition); err != nil {
			return err
		}
	case lost:
		ctx, cancel := context.WithCancel(ctx)
		err := s.Memory.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
			out, err := back(loaded)
			cancel()
			return out, err
		})
		return store.WithClass(err, store.Unknown)
	}
	err := s.Memory.Decide(ctx, d, back)
	if what == unknown {
		return store.WithClass(away, store.Unknown)
	}
	return err
}

// other is another owner, which takes a partition over and removes an entity.
func (s *side) other(ctx context.Context, p store.Partition) error {
	m := store.WatermarkStep{Partition: p, Token: store.Token{1}}
	taken, err := s.TakeOver(ctx, []store.Partition{p}, m.Token)
	if err != nil {
		return err
	}
	m.From, m.To = taken[0].NextOffset, taken[0].NextOffset
	return s.Memory.Decide(ctx, store.Decision{Revision: 1, Moves: []store.WatermarkStep{m}}, func(store.Loaded) (store.Outcome, error) {
		return store.Outcome{Purged: []string{fmt.Sprint("p", p.Number, "-0")}}, nil
	})
}

func newSide(ctx context.Context, t *rapid.T, running *sync.WaitGroup, cache int64) *side {
	s := &side{Memory: simulation.NewMemory(), next: none, used: prometheus.NewRegistry()}
	merged := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}, {Name: "lab", Patch: true}}})
	s.plan = &decide.Plan{Merge: merged, Fingerprint: []byte("c"), Revision: 1, MaxChange: 1 << 20}
	for n, spec := range []projections.Spec{
		{Customer: "one", Name: "ripeness", When: "doc.ripe != 3", Fields: []projections.Field{{Out: "id", Path: "id"}, {Out: "ripe", Path: "ripe"}}},
		{Customer: "two", Name: "weight", Fields: []projections.Field{{Out: "weight", Path: "weight"}}},
		{Customer: "two", Name: "all", Fields: []projections.Field{{Out: "weight", Path: "weight"}, {Out: "ripe", Path: "ripe"}}},
	} {
		p, err := projections.Compile(spec)
		require.NoError(t, err)
		s.plan.Projections = append(s.plan.Projections, p)
		s.plan.Services = append(s.plan.Services, decide.Service{Name: spec.Customer + "/" + spec.Name + "@sink", Number: int32(n + 1), Projection: n})
	}
	require.NoError(t, s.plan.Prepare())
	var names []string
	for _, service := range s.plan.Services {
		names = append(names, service.Name)
	}
	_, err := s.Services(ctx, names)
	require.NoError(t, err)
	_, err = s.Activate(ctx, s.plan.Fingerprint, false, store.Inbox{}, nil)
	require.NoError(t, err)
	s.decider = decide.New(decide.Options{
		Store: s, Plan: s.plan, Inbox: store.Inbox{Generation: 1, Topic: "inbox", TopicID: "id", Partitions: 2}, Workers: 1,
		Cache: cache, RetakeDelay: time.Nanosecond,
		Logger: slog.New(slog.DiscardHandler), Metrics: decide.NewMetrics(s.used),
	})
	running.Go(func() { _ = s.decider.Run(ctx) })
	s.assign(ctx, t)
	return s
}

func (s *side) assign(ctx context.Context, t *rapid.T) {
	_, err := s.decider.Assigned(ctx, "inbox", []int32{0, 1})
	require.NoError(t, err)
}

// drawRecord draws a record of one of three entities; deleted are the versions of their deletions.
func drawRecord(t *rapid.T, partition int32, at int64, deleted map[string]change.Version) change.Record {
	r := change.Record{Entity: fmt.Sprint("p", partition, "-", rapid.IntRange(0, 2).Draw(t, "entity"))}
	control := func(c change.Control) { c.ID = fmt.Sprint(at); r.Control = &c }
	services := rapid.SampledFrom([][]string{nil, {"one/ripeness@sink"}, {"two/all@sink", "two/weight@sink"}}).Draw(t, "services")
	before := change.NewVersion(1, rapid.Int64Range(0, at).Draw(t, "before"))
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0:
		control(change.Control{Action: change.Reset, Services: services})
	case 1:
		control(change.Control{Action: change.Refuse, Services: services, Version: before})
	case 2:
		control(change.Control{Action: change.Redecide, Services: services, Force: rapid.Bool().Draw(t, "force")})
	case 3:
		control(change.Control{Action: change.Purge, Version: deleted[r.Entity] + 1})
	case 4, 5, 6:
		r.Event = &change.Event{Origin: change.Origin{Source: rapid.SampledFrom([]string{"registry", "lab"}).Draw(t, "source"), Topic: "t", Partition: partition, Offset: at}, Op: change.Delete}
		deleted[r.Entity] = change.NewVersion(1, at)
	default:
		source, payload := "registry", fmt.Sprintf(`{"id":%q,"ripe":%d,"weight":%d}`, r.Entity, rapid.IntRange(1, 3).Draw(t, "ripe"), rapid.IntRange(1, 2).Draw(t, "weight"))
		if rapid.IntRange(0, 2).Draw(t, "lab") == 0 {
			source, payload = "lab", fmt.Sprintf(`{"note":%d,"weight":%s}`, rapid.IntRange(1, 2).Draw(t, "note"), rapid.SampledFrom([]string{"null", "5"}).Draw(t, "weight"))
		}
		// Now and then one comes again, late.
		r.Event = &change.Event{Origin: change.Origin{Source: source, Topic: "t", Partition: partition, Offset: at - rapid.Int64Range(0, 1).Draw(t, "late")}, Op: change.Upsert, Payload: []byte(payload)}
	}
	return r
}

// An owner with a cache decides the same as one that loads everything, for any
// evictions and any outcomes of its commits: the same frames, rows, entities
// and dead letters.
func TestMemoryDecidesNothingElse(t *testing.T) {
	hits := 0.0
	rapid.Check(t, func(t *rapid.T) {
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		sides := []*side{
			newSide(ctx, t, &running, 0),
			newSide(ctx, t, &running, rapid.SampledFrom([]int64{1 << 20, 12_000, 5_000, 2_000}).Draw(t, "cache")),
		}
		offsets := map[int32]int64{}
		deleted := map[string]change.Version{}
		for range rapid.IntRange(2, 15).Draw(t, "frames") {
			partition := rapid.Int32Range(0, 1).Draw(t, "partition")
			var records []transport.Received
			for range rapid.IntRange(1, 4).Draw(t, "records") {
				at := offsets[partition]
				offsets[partition]++
				r := drawRecord(t, partition, at, deleted)
				key, head, value, err := change.EncodeRecord(r)
				require.NoError(t, err)
				records = append(records, transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Offset: at, Time: time.UnixMilli(at)})
			}
			what := rapid.SampledFrom([]fault{none, none, none, none, none, none, refused, unknown, lost, fenced, elsewhere, reassign}).Draw(t, "fault")
			for _, s := range sides {
				if what == reassign {
					require.NoError(t, s.other(ctx, store.Partition{Generation: 1, Number: partition}))
					s.assign(ctx, t)
				} else {
					s.mu.Lock()
					s.next = what
					s.mu.Unlock()
				}
				f := transport.NewFrame("inbox", "id", partition, transport.LastAssignment()+1, records)
				require.NoError(t, s.decider.Handle(transport.NewMessage(ctx, f)))
			}
		}
		var entities [2][]store.Entity
		for i, s := range sides {
			var err error
			entities[i], err = s.Entities(ctx, "", 100)
			require.NoError(t, err)
		}
		require.Equal(t, entities[0], entities[1])
		for _, service := range sides[0].plan.Services {
			var keys []store.Key
			for p := range 2 {
				for e := range 3 {
					keys = append(keys, store.Key{Service: service.Number, Entity: fmt.Sprint("p", p, "-", e)})
				}
			}
			want, err := sides[0].Rows(ctx, keys)
			require.NoError(t, err)
			got, err := sides[1].Rows(ctx, keys)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		letters, err := sides[0].ListLetters(ctx, store.LetterFilter{})
		require.NoError(t, err)
		require.Empty(t, letters)
		for _, s := range sides {
			require.Eventually(t, s.decider.Idle, time.Minute, 100*time.Microsecond)
		}
		for p := range int32(2) {
			want, err := sides[0].Frames(ctx, p, 0, 1<<30)
			require.NoError(t, err)
			got, err := sides[1].Frames(ctx, p, 0, 1<<30)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		hits += hitsOf(t, sides[1].used)
		require.Zero(t, hitsOf(t, sides[0].used))
	})
	require.Positive(t, hits, "nothing was remembered")
}

func hitsOf(t require.TestingT, reg *prometheus.Registry) float64 {
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		if f.GetName() == "weir_decide_cache_lookups_total" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == "hit" {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}
