// Package servicelabel bounds the values of the label "service" of metrics.
package servicelabel

import (
	"strings"
	"sync"
)

// Most is how many services of a process have series of their own in its metrics.
const Most = 500

// All is the label of the services beyond all bounds.
const All = "*"

// Labels maps services to label values. The first services keep their names. Further services
// share a label by customer, "acme/*", and those of customers beyond the same bound share [All].
// A service keeps its label. Safe for concurrent use. A nil *Labels has no bound.
type Labels struct {
	max       int
	mu        sync.Mutex
	of        map[string]string // guarded by mu: label by service
	customers map[string]string // guarded by mu: label by customer
	own       int               // guarded by mu: services with a label of their own
}

// New returns labels for that many services by name, and as many customers.
func New(services int) *Labels {
	return &Labels{max: services, of: map[string]string{}, customers: map[string]string{}}
}

// Of returns the label of a service.
func (l *Labels) Of(service string) string {
	if l == nil {
		return service
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	label, known := l.of[service]
	if !known {
		label = l.next(service)
		l.of[service] = label
	}
	return label
}

// next returns the label of a new service. The caller holds l.mu.
func (l *Labels) next(service string) string {
	if l.own < l.max {
		l.own++
		return service
	}
	customer, _, _ := strings.Cut(service, "/")
	label, known := l.customers[customer]
	if !known {
		label = All
		if len(l.customers) < l.max {
			label = customer + "/" + All
			l.customers[customer] = label
		}
	}
	return label
}
