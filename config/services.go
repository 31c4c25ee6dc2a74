package config

import (
	"cmp"
	"slices"
	"strings"
)

// Service is one projection of one customer to one sink.
type Service struct {
	// Name is customer/projection@sink as it was first, before any rename. It identifies the
	// service in store, logs, keys, records and targets.
	Name string
	// Current is customer/projection@sink as the files have it.
	Current string
	// Projection is its index in Config.Projections.
	Projection int
	// Delivery is its sink.
	Delivery *Delivery
}

// serviceName names a service.
func serviceName(customer, projection, sink string) string {
	return customer + "/" + projection + "@" + sink
}

// first returns the first name of a projection, customer/projection.
func (p *Projection) first() string { return cmp.Or(p.Was, cmp.Or(p.origin, p.Customer)+"/"+p.Name) }

// Services returns all services in the order of the files.
func (c *Config) Services() []Service {
	var all []Service
	for i := range c.Projections {
		p := &c.Projections[i]
		for j := range p.Deliver {
			d := &p.Deliver[j]
			all = append(all, Service{
				Name:       cmp.Or(d.Was, p.first()+"@"+d.Name),
				Current:    serviceName(p.Customer, p.Name, d.Name),
				Projection: i,
				Delivery:   d,
			})
		}
	}
	return all
}

// AllServices returns all services, check services last. Those have a name only.
func (c *Config) AllServices() []Service {
	all := c.Services()
	for i := range c.Checks {
		all = append(all, Service{Name: c.Checks[i].Service(), Current: c.Checks[i].Current()})
	}
	return all
}

// ServiceNames returns the names of all services in the order of the files.
func (c *Config) ServiceNames() []string {
	var names []string
	for _, s := range c.Services() {
		names = append(names, s.Name)
	}
	return names
}

// FirstName returns the first name of the service whose present name is current, or current if
// there is no such service.
func (c *Config) FirstName(current string) string {
	for _, s := range c.AllServices() {
		if s.Current == current {
			return s.Name
		}
	}
	return current
}

// Renamed returns the current names of renamed services by Service.Name.
func (c *Config) Renamed() map[string]string {
	all := map[string]string{}
	for _, s := range c.AllServices() {
		if s.Current != s.Name {
			all[s.Name] = s.Current
		}
	}
	return all
}

// CheckRenames compares first names with the services that a store knows. The error is a *Faults.
// A store without services, as in a new environment, is no error.
func (c *Config) CheckRenames(known map[string]int32) error {
	var faults Faults
	renamed := func(name, current string, at Position) {
		if _, ok := known[name]; ok || name == current || len(known) == 0 {
			return
		}
		fix := "name the service as it was called first, or leave out was"
		if of := withoutService(known, c.AllServices()); len(of) > 0 {
			fix += "; without a service are " + strings.Join(of, ", ")
		}
		faults.add(Fault{File: at.File, Line: at.Line, Column: at.Column, Path: current, Problem: "was " + name + " first, which the store does not know", Fix: fix})
	}
	for _, s := range c.Services() {
		renamed(s.Name, s.Current, s.Delivery.Pos)
	}
	for i := range c.Checks {
		renamed(c.Checks[i].Service(), c.Checks[i].Current(), c.Checks[i].Pos)
	}
	if len(faults.List) == 0 {
		return nil
	}
	return faults.sorted()
}

// maxOffered bounds the names in a fix.
const maxOffered = 5

// withoutService returns the first few known names that no service has.
func withoutService(known map[string]int32, all []Service) (names []string) {
	for name := range known {
		if !slices.ContainsFunc(all, func(s Service) bool { return s.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxOffered)]
}
