package decide

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
)

// Service is one projection of one customer to one sink.
type Service struct {
	Name       string // customer/projection@sink
	Number     int32  // the store's number for the name
	Projection int    // index into Plan.Projections
	Log        bool   // its sink keeps every change (sinks.Log)
}

// Plan is a compiled configuration, as far as decisions depend on it. It is
// immutable and may be used from any goroutine.
type Plan struct {
	Merge       *merge.Plan
	Projections []*projections.Projection
	Services    []Service
	Fingerprint []byte // of everything that decisions depend on
	Revision    int64  // the active revision that this plan is
	// MaxChange bounds the encoded size of one change, in bytes: the largest record
	// that the broker accepts. A larger one is a dead letter.
	MaxChange int

	index *projections.Index
	// alike maps each projection to the projection of its shape that is evaluated for all of
	// them.
	alike      []int
	shapes     []int          // the projections that are evaluated
	servicesOf [][]int        // services of all projections of a shape, by the evaluated projection
	byName     map[string]int // service name to index
	byNumber   map[int32]int
	rank       []int  // of each projection, see ranks
	ranks      []byte // those of shapes, as a set of the history
	// fresh says, by an earlier fingerprint, which services are new since then. An entity
	// that was last evaluated under it needs only them, and those that an event touches.
	fresh map[string][]bool
	stamp []byte // see Stamp
	// members says of each source which reads below its mount there are.
	members map[string]memberReads
}

// sameShape maps each projection to the one of the same shape with the lowest rank.
func (p *Plan) sameShape() []int {
	first := make(map[[sha256.Size]byte]int, len(p.Projections))
	shapes := make([][sha256.Size]byte, len(p.Projections))
	for i, projection := range p.Projections {
		h := sha256.New()
		spec := projection.Spec()
		spec.Shape(h)
		shapes[i] = [sha256.Size]byte(h.Sum(nil))
		if known, ok := first[shapes[i]]; !ok || p.rank[i] < p.rank[known] {
			first[shapes[i]] = i
		}
	}
	of := make([]int, len(shapes))
	for i, shape := range shapes {
		of[i] = first[shape]
	}
	return of
}

// Learn tells the plan, before its first use, which services are new since an earlier
// fingerprint, by their index: those that were not there, or whose projection has another
// shape. All else that decisions depend on must be the same under both.
func (p *Plan) Learn(fingerprint []byte, fresh []bool) {
	if p.fresh == nil {
		p.fresh = map[string][]bool{}
	}
	p.fresh[string(fingerprint)] = fresh
}

// Stamp is the Fingerprint that the store has of an entity that was evaluated under the plan:
// that of the plan, and the highest number of its services. A service that was forgotten and
// is configured again has a higher one, under the same configuration: the entity was not
// evaluated for it. It is valid after Prepare, and must not be changed.
func (p *Plan) Stamp() []byte { return p.stamp }

const stampNumber = 4 // bytes of a stamp's number

// ofStamp returns the parts of a stamp; ok is false for an entity without a stamp.
func ofStamp(stamp []byte) (fingerprint []byte, highest int32, ok bool) {
	n := len(stamp) - stampNumber
	if n <= 0 {
		return nil, 0, false
	}
	return stamp[:n], int32(binary.BigEndian.Uint32(stamp[n:])), true
}

// newTo returns which services are new to an entity; known is false when all may be.
func (p *Plan) newTo(e *store.Entity) (fresh []bool, known bool) {
	fingerprint, highest, ok := ofStamp(e.Fingerprint)
	if !ok || !e.Found {
		return nil, false
	}
	if fresh, known = p.fresh[string(fingerprint)]; bytes.Equal(fingerprint, p.Fingerprint) {
		fresh, known = make([]bool, len(p.Services)), true
	}
	if _, newest, _ := ofStamp(p.stamp); !known || newest <= highest {
		return fresh, known
	}
	fresh = slices.Clone(fresh)
	for i := range p.Services {
		fresh[i] = fresh[i] || p.Services[i].Number > highest
	}
	return fresh, true
}

// memberReads says how projections read below the place of a source's documents.
type memberReads struct {
	any   bool // something below it is read
	named bool // by the name of a member, which no array has
}

// readers returns the memberReads of a plan's sources.
func (p *Plan) readers() map[string]memberReads {
	all := map[string]memberReads{}
	for source, mount := range p.Merge.Mounts() {
		m := all[source]
		for _, projection := range p.Projections {
			for _, path := range projection.Reads() {
				if n := len(mount); len(path) > n && slices.Equal(path[:n], mount) {
					m.any = true
					m.named = m.named || path[n] != projections.Elements && strings.Trim(path[n], "0123456789") != ""
				}
			}
		}
		all[source] = m
	}
	return all
}

// unreadable reports whether projections read members of a source's documents that a
// payload, which is no object, cannot have: every view of it would be empty.
func (p *Plan) unreadable(source string, payload canonicaltree.Node) bool {
	switch payload.Kind() {
	case canonicaltree.Object:
		return false
	case canonicaltree.Array:
		return p.members[source].named
	}
	return p.members[source].any
}

// reads reports whether a projection can read at a path of a source's documents, above it or
// below it.
func (p *Plan) reads(source string, path fieldcount.Path) bool {
	for name, mount := range p.Merge.Mounts() {
		if name != source {
			continue
		}
		whole := append(fieldcount.Path(slices.Clone(mount)), path...)
		for _, i := range p.shapes {
			for _, read := range p.Projections[i].Reads() {
				if whole.Meets(read) {
					return true
				}
			}
		}
	}
	return false
}

// Prepare checks the plan and builds its look-up tables; it must be called
// once before use.
func (p *Plan) Prepare() error {
	p.servicesOf, p.shapes = make([][]int, len(p.Projections)), nil
	p.byName = make(map[string]int, len(p.Services))
	p.byNumber = make(map[int32]int, len(p.Services))
	p.rank = ranks(p.Projections)
	p.alike = p.sameShape()
	p.ranks = make([]byte, (min(len(p.Projections), historyWidest)+7)/8)
	evaluated := slices.Clone(p.Projections)
	for i, first := range p.alike {
		if i == first {
			p.shapes = append(p.shapes, i)
			if rank := p.rank[i]; rank < historyWidest {
				p.ranks[rank/8] |= 1 << (rank % 8)
			}
		} else {
			evaluated[i] = nil
		}
	}
	p.index = projections.NewIndex(evaluated)
	p.members = p.readers()
	for i, s := range p.Services {
		if s.Projection < 0 || s.Projection >= len(p.Projections) {
			return fmt.Errorf("service %s: no projection %d", s.Name, s.Projection)
		}
		if _, twice := p.byName[s.Name]; twice {
			return fmt.Errorf("service %s is declared twice", s.Name)
		}
		p.byName[s.Name], p.byNumber[s.Number] = i, i
		first := p.alike[s.Projection]
		p.servicesOf[first] = append(p.servicesOf[first], i)
	}
	highest := int32(0)
	for i := range p.Services {
		highest = max(highest, p.Services[i].Number)
	}
	p.stamp = binary.BigEndian.AppendUint32(slices.Clone(p.Fingerprint), uint32(highest))
	if p.MaxChange <= 0 || len(p.Fingerprint) == 0 || p.Revision <= 0 {
		return fmt.Errorf("incomplete plan: size limit, fingerprint and revision are needed")
	}
	return nil
}
