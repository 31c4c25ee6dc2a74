package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
)

// Store is the part of a store that plan reads.
type Store interface {
	Active(ctx context.Context) (store.Revision, error)
	KnownServices(ctx context.Context) (map[string]int32, error)
	CountEntities(ctx context.Context) (int64, error)
	Entities(ctx context.Context, after string, limit int) ([]store.Entity, error)
}

// Input is the input of a preview. It is not changed.
type Input struct {
	Candidate *config.Config
	Against   *config.Config // the present configuration, nil if not given
	Store     Store
	Samples   int // per service
	// Progress, if given, is called with how many entities are done, of how many.
	Progress func(done, total int64)
}

// Bounds of one page, and so of memory.
const (
	PageEntities = 500
	PageRows     = 10_000
	maxFailedIDs = 5
	maxDiff      = 100
)

// ErrNothingRan says that the store has no state yet.
var ErrNothingRan = errors.New("nothing has run with this store yet, so there is no state to compare with: everything would be sent")

// Compute reads the whole state, page by page, and returns the effect of the candidate. It fails
// with errors of the store, ErrNothingRan, errors of Config.CheckRenames, or if a configuration
// cannot be compiled. It stops when ctx ends.
func Compute(ctx context.Context, in Input) (*Effect, error) {
	active, err := in.Store.Active(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrNothingRan
	}
	if err != nil {
		return nil, err
	}
	known, err := in.Store.KnownServices(ctx)
	if err != nil {
		return nil, err
	}
	if err := in.Candidate.CheckRenames(known); err != nil {
		return nil, err
	}
	c := &computation{
		in: in, known: known, numbers: maps.Clone(known), services: map[string]*Service{}, removed: map[int32]*Service{},
		effect: &Effect{Compared: in.Against != nil, Active: in.Candidate.DecidesLike(active.Fingerprint)},
	}
	if err := c.prepare(active); err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return c.finish(), nil
}

// computation is one run. Not for concurrent use.
type computation struct {
	in     Input
	effect *Effect
	known  map[string]int32
	// numbers of all services of both configurations. A service with a negative number has no
	// rows.
	numbers   map[string]int32
	candidate *side
	against   *side // nil without
	removed   map[int32]*Service
	services  map[string]*Service
	newlyHeld map[string]int64 // with against only, as anyway
	anyway    map[string]int64
	order     []string // of the result
}

// side is a configuration, ready to decide with.
type side struct {
	plan  *decide.Plan
	strip map[string]*stripper.Rules
}

func (c *computation) side(cfg *config.Config) (*side, error) {
	for _, s := range cfg.Services() {
		if _, ok := c.numbers[s.Name]; !ok {
			c.numbers[s.Name] = -int32(len(c.numbers)) - 1
		}
	}
	p, err := assemble.Plan(cfg, c.numbers, 1)
	if err != nil {
		return nil, err
	}
	out := &side{plan: p, strip: map[string]*stripper.Rules{}}
	for i := range cfg.Sources {
		rules, err := stripper.Compile(cfg.Sources[i].Strip)
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", cfg.Sources[i].Name, err)
		}
		if !rules.Empty() {
			out.strip[cfg.Sources[i].Name] = rules
		}
	}
	return out, nil
}

func (c *computation) prepare(active store.Revision) error {
	var err error
	if c.candidate, err = c.side(c.in.Candidate); err != nil {
		return err
	}
	for _, s := range c.in.Candidate.Services() {
		state := Kept
		if _, ok := c.known[s.Name]; !ok {
			state = New
		}
		c.services[s.Name] = &Service{Service: s.Name, State: state}
		if s.Current != s.Name {
			c.services[s.Name].Renamed = s.Current
		}
		c.order = append(c.order, s.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.known)) {
		if c.services[name] == nil {
			c.services[name] = &Service{Service: name, State: Removed}
			c.removed[c.known[name]] = c.services[name]
			c.order = append(c.order, name)
		}
	}
	if c.in.Against != nil {
		if c.against, err = c.side(c.in.Against); err != nil {
			return err
		}
		c.newlyHeld, c.anyway = map[string]int64{}, map[string]int64{}
	}
	c.note(active)
	return nil
}

func (c *computation) run(ctx context.Context) error {
	total, err := c.in.Store.CountEntities(ctx)
	if err != nil {
		return err
	}
	page := max(1, min(PageEntities, PageRows/max(1, len(c.numbers))))
	for after := ""; ; {
		entities, err := c.in.Store.Entities(ctx, after, page)
		if err != nil {
			return err
		}
		for i := range entities {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.entity(&entities[i])
		}
		c.effect.Entities += int64(len(entities))
		if c.in.Progress != nil {
			c.in.Progress(c.effect.Entities, max(total, c.effect.Entities))
		}
		if len(entities) < page {
			return ctx.Err()
		}
		after = entities[len(entities)-1].ID
	}
}

// entity decides one entity under the candidate.
func (c *computation) entity(e *store.Entity) {
	for number, s := range c.removed {
		if r := e.States.Get(number); r.Found && !r.Content.IsRetracted() {
			s.Keeps++
		}
	}
	_, step, err := c.candidate.decide(*e)
	// A dead letter of no service is one of the entity: its documents do not merge.
	if err != nil || slices.ContainsFunc(step.Letters, func(l store.DeadLetter) bool { return l.Service == "" }) {
		c.effect.Failed++
		if len(c.effect.FailedIDs) < maxFailedIDs {
			c.effect.FailedIDs = append(c.effect.FailedIDs, e.ID)
		}
		return
	}
	before := map[string]bool{}
	if c.against != nil {
		// It may be that it cannot be decided now: then nothing is sent now.
		if _, old, err := c.against.decide(*e); err == nil {
			for _, x := range old.Sent {
				before[x.Service] = true
			}
		}
	}
	for _, x := range step.Sent {
		s := c.services[x.Service]
		if x.Op == change.Retract {
			s.Retract++
		} else {
			s.Send++
		}
		if before[x.Service] {
			c.anyway[x.Service]++
		} else if len(s.Samples) < c.in.Samples {
			s.Samples = append(s.Samples, c.sample(*e, x))
		}
	}
	for _, name := range slices.Concat(step.Held, step.Filtered, step.Incomplete) {
		s := c.services[name]
		if e.States.Get(c.numbers[name]).Found {
			s.Unchanged++
		} else {
			s.Nothing++
		}
		if before[name] {
			c.newlyHeld[name]++
		}
	}
	for _, l := range step.Letters {
		if s := c.services[l.Service]; s != nil {
			s.Fail++
		}
	}
}

// decide decides an entity, stripped as far as this side strips more than the
// stored documents were.
func (s *side) decide(e store.Entity) (store.Entity, decide.Step, error) {
	var err error
	if len(s.strip) > 0 {
		e, err = decide.Stripped(e, func(source string, doc canonicaltree.Node) (canonicaltree.Node, error) {
			rules := s.strip[source]
			if rules == nil {
				return doc, nil
			}
			tree, err := rules.Strip(doc)
			if tree == nil {
				return doc, err
			}
			return tree.Root(), nil
		})
		if err != nil {
			return e, decide.Step{}, err
		}
	}
	step, err := s.plan.Preview(e, change.Control{Action: change.Redecide})
	return e, step, err
}

// sample shows a change, compared with the present document.
func (c *computation) sample(e store.Entity, x change.Change) Sample {
	s := Sample{Entity: e.ID, Op: string(x.Op), After: x.Doc}
	if c.against == nil {
		return s
	}
	service, ok := c.against.plan.Service(x.Service)
	if !ok {
		return s
	}
	e, _, err := c.against.decide(e)
	if err != nil {
		return s
	}
	inspection, err := c.against.plan.Inspect(e)
	if err != nil {
		return s
	}
	view, err := inspection.View(service.Projection)
	if err != nil || !view.Match {
		return s
	}
	row := e.States.Get(service.Number)
	s.Before = view.Doc
	s.Older = !bytes.Equal(row.Content, view.Content)
	s.Exact = !s.Older && c.against.plan.Projections[service.Projection].Exact()
	if x.Op == change.Upsert {
		s.Diff, s.More = Differences(s.Before, s.After)
	}
	return s
}

// Differences lists the paths at which two JSON documents differ, and tells how many
// more there are. Texts that are no JSON differ nowhere.
func Differences(before, after []byte) (all []Difference, more int) {
	a, errA := canonicaltree.Parse(before)
	b, errB := canonicaltree.Parse(after)
	if errA != nil || errB != nil {
		return nil, 0 // projections write JSON
	}
	canonicaltree.Diff(a.Root(), b.Root(), func(p canonicaltree.Path, x, y canonicaltree.Node) bool {
		if len(all) == maxDiff {
			more++
			return true
		}
		d := Difference{Path: p.String()}
		if x.Exists() {
			d.Before = bytes.Clone(x.Raw())
		}
		if y.Exists() {
			d.After = bytes.Clone(y.Raw())
		}
		all = append(all, d)
		return true
	})
	return all, more
}

func (c *computation) finish() *Effect {
	for _, name := range c.order {
		s := c.services[name]
		if s.State == Removed && s.Keeps == 0 {
			continue // removed long ago, or before it had anything
		}
		if c.against != nil && s.State != Removed {
			held, anyway := c.newlyHeld[name], c.anyway[name]
			s.NewlyHeld, s.Anyway = &held, &anyway
		}
		c.effect.Services = append(c.effect.Services, *s)
	}
	c.noteRenames()
	return c.effect
}
