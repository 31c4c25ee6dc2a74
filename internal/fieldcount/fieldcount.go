package fieldcount

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// MaxFields is how many fields are kept per source.
	MaxFields = 256
	// minMembers is from how many counted members on an object may become a star.
	minMembers = 32
)

// Observation is one event that changed something and led to no send.
type Observation struct {
	Entity string
	// Paths that it changed, as Locate returns them, no path twice; none: too many.
	Paths []Path
	// Examples are the paths with their indexes.
	Examples []string
	// Weight is how many events it represents.
	Weight int64
	// Projections that were evaluated for it, in vain.
	Projections int64
}

// Field is a field of a source's documents.
type Field struct {
	Path Path `json:"path,omitempty"`
	// Events that changed it; Saves are those of them that changed nothing that is read.
	Events int64 `json:"events"`
	Saves  int64 `json:"saves"`
	// Projections that were evaluated for these events, in vain.
	Projections int64  `json:"projections,omitempty"`
	Entity      string `json:"entity,omitempty"`  // of one such event
	Example     string `json:"example,omitempty"` // the path that it changed

	read bool
}

func (f *Field) add(o *Field) {
	f.Events, f.Saves, f.Projections, f.read = f.Events+o.Events, f.Saves+o.Saves, f.Projections+o.Projections, f.read || o.read
}

// Counts are about one source. The zero value is empty. Not for concurrent use.
type Counts struct {
	// Events that were decided, without stale ones and dead letters; Noise are
	// those of them that changed nothing.
	Events int64 `json:"events"`
	Noise  int64 `json:"noise"`
	// Suppressed changed something and led to no send; Unread are those of them that changed
	// nothing that is read.
	Suppressed int64 `json:"suppressed"`
	Unread     int64 `json:"unread"`
	// Fields are in no order.
	Fields []*Field `json:"fields"`
	// Other sums up the fields that are not kept, and events that changed too many.
	Other Field `json:"other"`
}

// Add counts an observation. read reports whether a projection can read at a path.
func (c *Counts) Add(o Observation, read func(Path) bool) {
	c.Suppressed += o.Weight
	if len(o.Paths) == 0 {
		c.Other.Events += o.Weight
		return
	}
	changed := make([]*Field, 0, len(o.Paths))
	unread := true
	for i, p := range o.Paths {
		f := c.at(p)
		if f == nil {
			f = &Field{Path: p, Entity: o.Entity, Example: o.Examples[i], read: len(p) == 0 || read(p)}
			c.Fields = append(c.Fields, f)
		}
		unread = unread && !f.read
		if !slices.Contains(changed, f) {
			changed = append(changed, f)
		}
	}
	once := Field{Events: o.Weight, Projections: o.Projections * o.Weight}
	if unread {
		once.Saves = o.Weight
		c.Unread += o.Weight
	}
	for _, f := range changed {
		f.add(&once)
	}
	c.fit()
}

// at returns the field that counts for a path, nil if there is none yet.
func (c *Counts) at(p Path) (found *Field) {
	for _, f := range c.Fields {
		if slices.Equal(f.Path, p) {
			return f
		}
		if len(f.Path) == len(p) && f.Path.Covers(p) {
			found = f
		}
	}
	return found
}

// Merge adds other counts, which stay as they are.
func (c *Counts) Merge(other *Counts) {
	c.Events, c.Noise = c.Events+other.Events, c.Noise+other.Noise
	c.Suppressed, c.Unread = c.Suppressed+other.Suppressed, c.Unread+other.Unread
	c.Other.add(&other.Other)
	for _, f := range other.Fields {
		c.put(f)
	}
	c.fit()
}

// put adds a field, which stays as it is.
func (c *Counts) put(f *Field) {
	if have := c.at(f.Path); have != nil {
		have.add(f)
		return
	}
	own := *f
	c.Fields = append(c.Fields, &own)
}

// fit brings the fields within their bound.
func (c *Counts) fit() {
	for len(c.Fields) > MaxFields {
		if object, n := c.largest(); n >= minMembers {
			c.fold(object)
			continue
		}
		rarest := slices.MinFunc(c.Fields, func(a, b *Field) int {
			return cmp.Or(cmp.Compare(a.Events, b.Events), slices.Compare(b.Path, a.Path))
		})
		c.Other.add(rarest)
		c.Fields = slices.DeleteFunc(c.Fields, func(f *Field) bool { return f == rarest })
	}
}

// largest returns the object below the root with the most members that are counted, or whose
// members' members are.
func (c *Counts) largest() (object Path, n int) {
	members := map[string]map[string]bool{}
	for _, f := range c.Fields {
		for depth := 1; depth < len(f.Path); depth++ {
			if f.Path[depth] == Any {
				continue
			}
			key := strings.Join(f.Path[:depth], "\x00")
			if members[key] == nil {
				members[key] = map[string]bool{}
			}
			members[key][f.Path[depth]] = true
			if k := len(members[key]); k > n || k == n && slices.Compare(f.Path[:depth], object) < 0 {
				object, n = f.Path[:depth], k
			}
		}
	}
	return object, n
}

// fold makes one of all members of an object.
func (c *Counts) fold(object Path) {
	fields := c.Fields
	c.Fields = nil
	for _, f := range fields {
		if len(f.Path) > len(object) && slices.Equal(f.Path[:len(object)], object) {
			f.Path = slices.Clone(f.Path)
			f.Path[len(object)] = Any
		}
		c.put(f)
	}
}
