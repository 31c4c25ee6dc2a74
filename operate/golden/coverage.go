package golden

import (
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/store"
)

// Coverage is the parts of a configuration that cases reach. The zero value is for Run.
type Coverage struct {
	plan    *decide.Plan
	guards  map[string]bool // services with a guard of their own, by name
	reached map[string]bool
}

// Parts of a configuration that a case may reach.
const (
	partSend    = "no case sends"
	partHold    = "no case holds back"
	partMatch   = "its filter lets no document through"
	partKeepOut = "its filter keeps no document out"
	partRefuse  = "no case is refused, and its filter or a computed field may fail"
	partField   = "no case shows field "
	partGuard   = "no case is held by its guard"
)

// begin prepares the coverage of a configuration. A default guard needs no case.
func (c *Coverage) begin(cfg *config.Config, plan *decide.Plan) {
	c.plan, c.guards, c.reached = plan, map[string]bool{}, map[string]bool{}
	for _, s := range cfg.Services() {
		g := s.Delivery.Guard
		c.guards[s.Name] = g.Retract+g.Update > 0 && !g.IsDefault()
	}
}

func (c *Coverage) reach(name, part string) { c.reached[name+": "+part] = true }

// held adds the guard of a service.
func (c *Coverage) held(service string) {
	if c != nil {
		c.reach(service, partGuard)
	}
}

// note adds the parts that a step reached.
func (c *Coverage) note(e store.Entity, step *decide.Step) error {
	if c == nil {
		return nil
	}
	for _, name := range slices.Concat(step.Held, step.Pruned) {
		c.reach(name, partHold)
	}
	for _, l := range step.Letters {
		if s, ok := c.plan.Service(l.Service); ok {
			c.reach(c.name(s.Projection), partRefuse)
		}
	}
	for _, sent := range step.Sent {
		c.reach(sent.Service, partSend)
		s, _ := c.plan.Service(sent.Service)
		if sent.Op == change.Retract {
			continue
		}
		for field, shown := range c.plan.Projections[s.Projection].Fields(sent.Doc) {
			if shown {
				c.reach(c.name(s.Projection), partField+field)
			}
		}
	}
	if !e.Found {
		return nil
	}
	in, err := c.plan.Inspect(e)
	if err != nil || !in.Present {
		return err
	}
	for i := range c.plan.Projections {
		switch view, err := in.View(i); {
		case err != nil: // a dead letter says it
		case view.Match:
			c.reach(c.name(i), partMatch)
		default:
			c.reach(c.name(i), partKeepOut)
		}
	}
	return nil
}

func (c *Coverage) name(projection int) string {
	spec := c.plan.Projections[projection].Spec()
	return spec.Customer + "/" + spec.Name
}

// Unreached lists the items that no case reached, and counts all items.
func (c *Coverage) Unreached() (missing []string, all int) {
	want := func(name string, parts ...string) {
		for _, part := range parts {
			all++
			if !c.reached[name+": "+part] {
				missing = append(missing, name+": "+part)
			}
		}
	}
	for i, p := range c.plan.Projections {
		for field := range p.Fields(nil) {
			want(c.name(i), partField+field)
		}
		if p.Spec().When != "" {
			want(c.name(i), partMatch, partKeepOut)
		}
		if p.CanFail() {
			want(c.name(i), partRefuse)
		}
		for _, s := range c.plan.Services {
			if s.Projection == i {
				want(s.Name, partSend, partHold)
				if c.guards[s.Name] {
					want(s.Name, partGuard)
				}
			}
		}
	}
	return missing, all
}
