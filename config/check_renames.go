package config

import (
	"slices"
	"strings"
)

// checkRenames checks the first names of customers, projections and services. A name has one
// meaning: the first name of a service is no other service's name, neither first nor current.
func (l *loader) checkRenames() {
	c := &l.config
	for i, doc := range l.customers {
		if !doc.has("was") || !doc.known("was") {
			continue
		}
		switch other := slices.Index(c.Customers, l.origins[i]); {
		case !namePattern.MatchString(l.origins[i]):
			doc.fault("was", "is not a usable name", wantName)
		case other == i:
			doc.fault("was", "is the customer's own name", "the name before the rename, or no was")
		case other >= 0:
			doc.fault("was", "is a customer in "+l.customers[other].file, "the name before the rename")
		case slices.Index(l.origins, l.origins[i]) < i:
			doc.fault("was", "is the first name of the customer in "+l.customers[slices.Index(l.origins, l.origins[i])].file, "the name before the rename")
		}
	}
	n := names{l: l, firsts: map[string]string{}, currents: map[string]bool{}}
	for _, s := range c.AllServices() {
		n.currents[s.Current] = true
	}
	for i := range c.Projections {
		p, doc := &c.Projections[i], l.owner[i]
		path := member("projections", p.Name)
		n.form(doc, p.origin, member(path, "was"), p.Was, "")
		for j := range p.Deliver {
			n.form(doc, p.origin, member(member(member(path, "deliver"), p.Deliver[j].Name), "was"), p.Deliver[j].Was, "@")
		}
	}
	for _, s := range c.Services() {
		p := &c.Projections[s.Projection]
		n.apart(l.owner[s.Projection], member(member(member("projections", p.Name), "deliver"), s.Delivery.Name), s)
	}
	for i := range c.Checks {
		check, path := &c.Checks[i], member("checks", c.Checks[i].Name)
		n.form(l.checked[i], check.origin, member(path, "was"), check.Was, "@"+checkSink)
		n.apart(l.checked[i], path, Service{Name: check.Service(), Current: check.Current()})
	}
}

// names are the names of all services.
type names struct {
	l        *loader
	firsts   map[string]string // the current name by the first
	currents map[string]bool
}

// form checks the form of a first name: customer/projection and a sink.
func (n *names) form(doc *document, customer, path, was, sink string) {
	if !doc.has(path) || !doc.known(path) {
		return
	}
	of, rest, _ := strings.Cut(was, "/")
	projection, at, found := strings.Cut(rest, "@")
	want := customer + "/projection"
	switch sink {
	case "":
	case "@":
		want += "@sink"
	default:
		want += sink
	}
	if of != customer || !namePattern.MatchString(projection) || found != (sink != "") || found && !namePattern.MatchString(at) || len(sink) > 1 && "@"+at != sink {
		doc.fault(path, "is not the first name of something of customer "+customer, want)
	}
}

// apart checks that no other service has the first name of s.
func (n *names) apart(doc *document, path string, s Service) {
	at := path
	if own := member(path, "was"); doc.has(own) {
		at = own
	}
	other, twice := n.firsts[s.Name]
	n.firsts[s.Name] = s.Current
	switch {
	case twice:
		doc.faultKey(at, "is "+s.Name+" in store and targets, as "+other+" is", "the first name of one service each")
	case s.Name != s.Current && n.currents[s.Name]:
		doc.faultKey(at, "was "+s.Name+" first, which is the name of another service now", "another name for the other service: this one keeps its first name in store and targets")
	}
}
