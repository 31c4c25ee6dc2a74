package fieldcount

import "slices"

// MaxFields is how many fields are kept per source: later ones are counted together.
const MaxFields = 256

// Observation is one event that changed something and led to no send.
type Observation struct {
	Entity string
	// Paths are the changed paths, as Locate returns them, without repetition. Empty means that
	// there were too many.
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
	f.Events, f.Saves, f.Projections = f.Events+o.Events, f.Saves+o.Saves, f.Projections+o.Projections
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
			f = c.put(Field{Path: p, Entity: o.Entity, Example: o.Examples[i], read: len(p) == 0 || read(p)})
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
}

// put returns the place of a field that is not kept yet: its own, or, without room, the one of
// all others.
func (c *Counts) put(f Field) *Field {
	if len(c.Fields) < MaxFields {
		c.Fields = append(c.Fields, &f)
		return &f
	}
	c.Other.read = f.read // for this event
	return &c.Other
}

// at returns the field of a path, nil if it is not kept.
func (c *Counts) at(p Path) *Field {
	i := slices.IndexFunc(c.Fields, func(f *Field) bool { return slices.Equal(f.Path, p) })
	if i < 0 {
		return nil
	}
	return c.Fields[i]
}

// Merge adds other counts, which stay as they are.
func (c *Counts) Merge(other *Counts) {
	c.Events, c.Noise = c.Events+other.Events, c.Noise+other.Noise
	c.Suppressed, c.Unread = c.Suppressed+other.Suppressed, c.Unread+other.Unread
	c.Other.add(&other.Other)
	for _, f := range other.Fields {
		have := c.at(f.Path)
		if have == nil {
			have = c.put(Field{Path: f.Path, Entity: f.Entity, Example: f.Example, read: f.read})
		}
		have.add(f)
	}
}
