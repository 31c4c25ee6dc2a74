package decide

import (
	"fmt"

	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// Service is one projection of one customer to one sink.
type Service struct {
	Name       string // customer/projection@sink
	Number     int32  // the store's number for the name
	Projection int    // index into Plan.Projections
}

// Plan is a compiled configuration, as far as decisions depend on it. It is
// immutable and may be used from any goroutine.
type Plan struct {
	Merge       *merge.Plan
	Projections []*projections.Projection
	Services    []Service
	Fingerprint []byte // of everything that decisions depend on
	Revision    int64  // the active revision that this plan is
	// MaxChange bounds the encoded size of one change, in bytes: what the
	// broker accepts as one record. A larger one is a dead letter.
	MaxChange int

	index      *projections.Index
	servicesOf [][]int        // projection to service indexes
	byName     map[string]int // service name to index
	byNumber   map[int32]int
	rank       []int // of each projection, see ranks
}

// Prepare checks the plan and builds its look-up tables; it must be called
// once before use.
func (p *Plan) Prepare() error {
	p.index = projections.NewIndex(p.Projections)
	p.servicesOf = make([][]int, len(p.Projections))
	p.byName = make(map[string]int, len(p.Services))
	p.byNumber = make(map[int32]int, len(p.Services))
	p.rank = ranks(p.Projections)
	for i, s := range p.Services {
		if s.Projection < 0 || s.Projection >= len(p.Projections) {
			return fmt.Errorf("service %s: no projection %d", s.Name, s.Projection)
		}
		if _, twice := p.byName[s.Name]; twice {
			return fmt.Errorf("service %s is declared twice", s.Name)
		}
		p.byName[s.Name], p.byNumber[s.Number] = i, i
		p.servicesOf[s.Projection] = append(p.servicesOf[s.Projection], i)
	}
	if p.MaxChange <= 0 || len(p.Fingerprint) == 0 || p.Revision <= 0 {
		return fmt.Errorf("incomplete plan: size limit, fingerprint and revision are needed")
	}
	return nil
}
