package assemble

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// ErrUnreadable is the error of a target that no sink of its kind can read back.
var ErrUnreadable = errors.New("cannot be read back")

// CanReadBack reports whether the target of a service can be read back.
func CanReadBack(s config.Service) bool {
	_, ok := s.Delivery.Sink.(kind.Scannable)
	return ok
}

// Target opens the target of a service for reading. The caller closes it. It creates and drops
// nothing. It reports whether the target expires old rows.
func (a *Sinks) Target(ctx context.Context, s config.Service) (target sinks.Scannable, forgets bool, err error) {
	k, ok := s.Delivery.Sink.(kind.Scannable)
	if !ok {
		return nil, false, ErrUnreadable
	}
	toRead, forgets := k.ToRead()
	sink, err := a.makeOf(s.Name, toRead)
	if err != nil {
		return nil, false, err
	}
	readable, ok := sink.(sinks.Scannable)
	if !ok {
		return nil, false, errors.Join(fmt.Errorf("the sink of %s cannot be read back", s.Name), sink.Close())
	}
	if err := readable.Open(ctx); err != nil {
		return nil, false, errors.Join(err, readable.Close())
	}
	return readable, forgets, nil
}
