package pipeline

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The events of the benchmarks: documents of 40 fields, some 600 bytes as an
// event. Of the events that follow an entity's first one, 30 % change nothing
// that matters to anybody; one in four brings its members in another order.
const (
	benchFields  = 40
	benchNoise   = 0.3
	benchReorder = 0.25
	benchGroups  = 20 // sparse: how many services at most share out the fields
)

// workload describes the services and the events.
type workload struct {
	name string
	// changes is how many fields an event changes that is no noise.
	changes func(r *rand.Rand) int
	// view returns the fields and the filter of service i of n.
	view func(i, n int) (fields []int, when string)
	// regions returns how many values the filters of n services require.
	regions func(n int) int
}

// sparse: an event changes one field, which one service sees on average. Up to
// 20 services share the fields out; where there are more, each of those views
// is shared out again by region.
var sparse = workload{
	name:    "sparse",
	changes: func(*rand.Rand) int { return 1 },
	regions: benchRegions,
	view: func(i, n int) (fields []int, when string) {
		groups := min(n, benchGroups)
		for f := i % groups; f < benchFields; f += groups {
			fields = append(fields, f)
		}
		if n > benchGroups {
			when = fmt.Sprintf("doc.region == %d", i/groups)
		}
		return fields, when
	},
}

// dense: an event changes one or two fields; every service reads 8 of the 40.
var dense = workload{
	name:    "dense",
	changes: func(r *rand.Rand) int { return 1 + r.IntN(2) },
	regions: benchRegions,
	view: func(i, _ int) (fields []int, when string) {
		return rand.New(rand.NewPCG(uint64(i), 8)).Perm(benchFields)[:8], ""
	},
}

func benchRegions(services int) int { return max(1, services/benchGroups) }

// few: an event concerns three services, however many there are.
var few = workload{
	name:    "few",
	changes: dense.changes,
	regions: func(n int) int { return max(1, n/3) },
	view: func(i, n int) (fields []int, when string) {
		fields, _ = dense.view(i, n)
		return fields, fmt.Sprintf("doc.region == %d", i%max(1, n/3))
	},
}

// stream makes the events. The same seed yields the same ones.
type stream struct {
	w        workload
	r        *rand.Rand
	services int
	n        int
	entities [][benchFields]uint32
}

type event struct {
	key  string
	json []byte
}

func newStream(w workload, entities, services int) *stream {
	return &stream{w: w, r: rand.New(rand.NewPCG(1, 2)), services: services, entities: make([][benchFields]uint32, entities)}
}

// first returns the first event of every entity.
func (s *stream) first() []event {
	events := make([]event, len(s.entities))
	for i := range s.entities {
		for f := range benchFields {
			s.entities[i][f] = s.r.Uint32()
		}
		events[i] = s.event(i)
	}
	return events
}

// more returns n further events.
func (s *stream) more(n int) []event {
	events := make([]event, n)
	for i := range events {
		e := s.r.IntN(len(s.entities))
		if s.r.Float64() >= benchNoise {
			for range s.w.changes(s.r) {
				s.entities[e][s.r.IntN(benchFields)] = s.r.Uint32()
			}
		}
		events[i] = s.event(e)
	}
	return events
}

func (s *stream) event(entity int) event {
	s.n++
	key := fmt.Sprintf("E-%06d", entity)
	var b strings.Builder
	b.Grow(720)
	fmt.Fprintf(&b, `{"id":"%s","event":"%d","data":{"region":%d,"updated_at":%d`, key, s.n, entity%s.w.regions(s.services), s.n)
	from := 0
	if s.r.Float64() < benchReorder {
		from = s.r.IntN(benchFields)
	}
	for i := range benchFields {
		f := (from + i) % benchFields
		fmt.Fprintf(&b, `,"f%02d":"%06x"`, f, s.entities[entity][f]>>8)
	}
	b.WriteString("}}")
	return event{key, []byte(b.String())}
}

// customers returns the files of the customers, with one service each; sink
// returns the sink of each.
func (s *stream) customers(sink func(i int) string) map[string]string {
	files := map[string]string{}
	for i := range s.services {
		fields, when := s.w.view(i, s.services)
		var b strings.Builder
		fmt.Fprintf(&b, "customer: c%d\nprojections:\n  view:\n", i)
		if when != "" {
			fmt.Fprintf(&b, "    when: '%s'\n", when)
		}
		b.WriteString("    fields:\n")
		for _, f := range fields {
			fmt.Fprintf(&b, "      field_%d: f%02d\n", f, f)
		}
		fmt.Fprintf(&b, "    deliver:\n      sink: %s\n", sink(i))
		files[fmt.Sprintf("customers/c%05d.yaml", i)] = b.String()
	}
	return files
}
