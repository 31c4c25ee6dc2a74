package assemble

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
)

// ErrUnreadable is the error of a target that no sink of its kind can read back.
var ErrUnreadable = errors.New("cannot be read back: only ClickHouse and PostgreSQL tables can")

// Target opens the target of a service to be read; close it. Nothing is created
// in it and nothing dropped. It reports whether the target drops old rows by itself.
func (a *Sinks) Target(ctx context.Context, s config.Service) (target sinks.Readable, forgets bool, err error) {
	d := *s.Delivery
	s.Delivery = &d
	switch {
	case d.ClickHouse != nil:
		c := *d.ClickHouse
		c.Create = false
		d.ClickHouse = &c
	case d.Postgres != nil:
		c := *d.Postgres
		forgets = c.Retention > 0
		c.Create, c.Retention = false, 0
		d.Postgres = &c
	default:
		return nil, false, ErrUnreadable
	}
	sink, err := a.make(s)
	if err != nil {
		return nil, false, err
	}
	readable, ok := sink.(sinks.Readable)
	if !ok {
		return nil, false, errors.Join(fmt.Errorf("the sink of %s cannot be read back", s.Name), sink.Close())
	}
	if err := readable.Open(ctx); err != nil {
		return nil, false, errors.Join(err, readable.Close())
	}
	return readable, forgets, nil
}
