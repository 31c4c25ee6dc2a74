package simulation

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/sources/postgres"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// Fixture is what does not depend on a seed: compiled once, shared by any
// number of schedules at the same time.
type Fixture struct {
	variants map[variant]configuration
	decide   *decide.Metrics
	deliver  *deliver.Metrics
	ingest   *ingest.Metrics
}

// variant says which services and sources a schedule has.
type variant struct {
	log, state, dumb, lab bool
	tables                bool // the second source is a database, not the laboratory
	altered               bool // projections of a later configuration
}

// configuration is a variant, compiled.
type configuration struct {
	plan   *decide.Plan
	shapes []ingest.Extractor
	rules  oracle.Config
}

const inboxTopic = "inbox"

// Services of the simulated configuration. The first two see the same view.
const (
	logService   = "one/ripeness@log"
	stateService = "one/ripeness@state"
	dumbService  = "two/list@dumb"
)

// NewFixture compiles the configurations. Their plans have no revisions yet.
func NewFixture() (*Fixture, error) {
	reg := prometheus.NewRegistry()
	f := &Fixture{variants: map[variant]configuration{},
		decide: decide.NewMetrics(reg), deliver: deliver.NewMetrics(reg), ingest: ingest.NewMetrics(reg)}
	for bits := range 1 << 6 {
		v := variant{log: bits&1 > 0, state: bits&2 > 0, dumb: bits&4 > 0, lab: bits&8 > 0, altered: bits&16 > 0, tables: bits&32 > 0}
		if bits&7 == 0 || v.lab && v.tables {
			continue
		}
		c, err := v.compile()
		if err != nil {
			return nil, err
		}
		f.variants[v] = c
	}
	return f, nil
}

// compile makes the configuration: one source or two, up to two projections and
// three services, as the product has it and as the other model does.
func (v variant) compile() (c configuration, err error) {
	sources := []string{"registry"}
	if v.lab {
		sources = append(sources, "lab")
	}
	if v.tables {
		sources = append(sources, shop)
	}
	drop := []string{"event", "seq", "op"}
	strip, err := stripper.Compile(drop)
	if err != nil {
		return c, err
	}
	var spec merge.Spec
	c.rules.Strip = map[string][]string{}
	for _, source := range sources {
		spec.Sources = append(spec.Sources, merge.Source{Name: source})
		c.rules.Sources = append(c.rules.Sources, oracle.Source{Name: source, Entity: "id", EventID: "event", Operation: "op", Sequence: "seq"})
		c.rules.Strip[source] = drop
		c.shapes = append(c.shapes, ingest.Extractor{
			Source: source, Entity: ingest.Locator{Path: "id"}, EventID: ingest.Locator{Path: "event"},
			Operation: ingest.Locator{Path: "op"}, Sequence: ingest.Locator{Path: "seq"},
			IsDelete: func(op string) bool { return op == "delete" }, Strip: strip, MaxEvent: 1 << 20, MaxEntity: 256,
		})
		if source == shop {
			last := len(c.shapes) - 1
			c.shapes[last] = ingest.Extractor{Source: source, Entity: ingest.Locator{Key: true}, Sequence: ingest.Locator{Header: postgres.SequenceHeader}, Session: ingest.Locator{Header: postgres.SessionHeader}, ByUUID: true, Strip: strip, MaxEvent: 1 << 20, MaxEntity: 256}
			c.rules.Sources[last] = oracle.Source{Name: source, Entity: "key", Sequence: "header:sequence"}
		}
	}
	c.rules.MaxText = maxChange
	c.plan = &decide.Plan{Fingerprint: fmt.Appendf(nil, "%+v", v), MaxChange: maxChange}
	c.plan.Merge = merge.Compile(spec)
	add := func(p projections.Spec, other oracle.Projection, services ...string) error {
		compiled, err := projections.Compile(p)
		if err != nil || len(services) == 0 {
			return err
		}
		for _, name := range services {
			c.plan.Services = append(c.plan.Services, decide.Service{Name: name, Number: int32(len(c.plan.Services) + 1),
				Projection: len(c.plan.Projections)})
		}
		c.plan.Projections = append(c.plan.Projections, compiled)
		for _, f := range p.Fields {
			other.Fields = append(other.Fields, oracle.Field{To: f.Out, From: f.Path})
		}
		for _, f := range p.Carry {
			other.Fields = append(other.Fields, oracle.Field{To: f.Out, From: f.Path, Carried: true})
		}
		other.Services = services
		c.rules.Projection = append(c.rules.Projection, other)
		return nil
	}
	var ripe, list []string
	if v.log {
		ripe = append(ripe, logService)
	}
	if v.state {
		ripe = append(ripe, stateService)
	}
	if v.dumb {
		list = append(list, dumbService)
	}
	if v.altered { // nothing is filtered, and the views have other members
		err = add(projections.Spec{Customer: "one", Name: "ripeness",
			Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "ripeness", Path: "ripeness_level"}}}, oracle.Projection{}, ripe...)
		if err != nil {
			return c, err
		}
		err = add(projections.Spec{Customer: "two", Name: "list",
			Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "origin", Path: "origin"}, {Out: "weight", Path: "weight"}}}, oracle.Projection{}, list...)
		if err != nil {
			return c, err
		}
		return c, nil
	}
	err = add(projections.Spec{Customer: "one", Name: "ripeness", When: `doc.origin != "XX"`,
		Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "ripeness", Path: "ripeness_level"}, {Out: "weight", Path: "weight"}}},
		oracle.Projection{When: func(doc any) bool { return oracle.At(doc, "origin") != "XX" }}, ripe...)
	if err != nil {
		return c, err
	}
	err = add(projections.Spec{Customer: "two", Name: "list",
		Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "weight", Path: "weight"}},
		Carry:  []projections.Field{{Out: "from", Path: "origin"}}}, oracle.Projection{}, list...)
	if err != nil {
		return c, err
	}
	return c, nil
}

// activate makes a configuration the active one.
func (w *world) activate(c *configuration) error {
	ctx, plan := context.Background(), *c.plan
	revision, err := w.mem.Activate(ctx, plan.Fingerprint, false, store.Inbox{}, nil)
	if err != nil {
		return err
	}
	plan.Revision, plan.Services = revision.Number, slices.Clone(plan.Services)
	names := make([]string, len(plan.Services))
	for i, service := range plan.Services {
		names[i] = service.Name
	}
	numbers, err := w.mem.Services(ctx, names)
	if err != nil {
		return err
	}
	for i := range plan.Services {
		plan.Services[i].Number = numbers[names[i]]
	}
	c.plan = &plan
	return c.plan.Prepare()
}

// customer returns the target of a service; nil without one.
func (w *world) customer(service string) *customer {
	i := slices.IndexFunc(w.sinks, func(c *customer) bool { return c.service == service })
	if i < 0 {
		return nil
	}
	return w.sinks[i]
}

// newest is the configuration that a process starts with now.
func (w *world) newest() *configuration {
	if w.deployed.Load() {
		return w.later
	}
	return &w.configuration
}
