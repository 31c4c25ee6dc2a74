package config

import (
	"fmt"
)

// shareConnections applies the bound of a target's connections that one of its
// services names to all of them, and finds those that name another one.
func (l *loader) shareConnections() {
	type bound struct {
		claim
		value   int
		written string
	}
	named, widest := map[string]bound{}, map[string]int{}
	services := l.config.Services()
	for _, s := range services {
		p, ok := s.Delivery.Sink.(Pooled)
		if !ok {
			continue
		}
		c := p.Connections()
		target, most := c.Client, c.Most
		widest[target] = max(widest[target], c.Wants)
		doc, path := l.ownerOf(s)
		at := member(path, s.Delivery.Sink.Kind()) + ".max_connections"
		if !doc.known(at) {
			continue
		}
		first, taken := named[target]
		if !taken {
			named[target] = bound{claim{s.Name, doc.at(at)}, *most, doc.values[at].raw}
		} else if first.value != *most {
			doc.fault(at, fmt.Sprintf("shares its connections with %s, which has %s", first, first.written), "one number for all services of a target")
		}
	}
	for _, s := range services {
		p, ok := s.Delivery.Sink.(Pooled)
		if !ok {
			continue
		}
		c := p.Connections()
		if b, ok := named[c.Client]; ok {
			*c.Most = b.value
		} else {
			*c.Most = max(*c.Most, widest[c.Client])
		}
	}
}
