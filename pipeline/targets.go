package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/sinks"
)

// openTarget opens the target of a service to be read. Nothing is created in it
// and nothing dropped.
func (p *Pipeline) openTarget(ctx context.Context, service string) (*operate.Target, error) {
	for _, s := range p.services() {
		if s.Name != service {
			continue
		}
		t := &operate.Target{}
		d := *s.Delivery
		s.Delivery = &d
		switch {
		case d.ClickHouse != nil:
			c := *d.ClickHouse
			c.Create = false
			d.ClickHouse = &c
		case d.Postgres != nil:
			c := *d.Postgres
			t.Forgets = c.Retention > 0
			c.Create, c.Retention = false, 0
			d.Postgres = &c
		default:
			return nil, &operate.Impossible{Reason: fmt.Sprintf("the target of %s cannot be read back: only ClickHouse and PostgreSQL tables can", service)}
		}
		sink, err := p.makeSink(s)
		if err != nil {
			return nil, err
		}
		readable, ok := sink.(sinks.Readable)
		if !ok {
			return nil, fmt.Errorf("the sink of %s cannot be read back", service)
		}
		if err := readable.Open(ctx); err != nil {
			return nil, errors.Join(err, readable.Close())
		}
		t.Readable = readable
		return t, nil
	}
	return nil, &operate.Impossible{Reason: fmt.Sprintf("there is no service %s in the active configuration", service)}
}
