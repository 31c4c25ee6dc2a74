package pipeline

import (
	"context"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/checkhttp"
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// mountChecks serves check services, including those that a reload adds. The returned
// function lets decisions in flight finish until ctx ends.
func (f *frontDoor) mountChecks(server *api.Server) (stop func(ctx context.Context)) {
	checker := checks.New(checks.Options{
		Store: f.store, MaxWaiting: max(20_000, 4*f.cfg.API.MaxRows), Timeout: f.cfg.API.Timeout.D(), Metrics: f.metrics.checks,
	})
	services := newCheckServices(f.store, f.active.config)
	checkhttp.Mount(server, checkhttp.Options{
		Checker: checker, Find: services.find, MaxRows: f.cfg.API.MaxRows, MaxBody: int64(f.cfg.API.MaxBody), MaxEntity: int(f.cfg.Limits.EntityID), Logger: f.log,
	})
	return checker.Close
}

// serviceNumbers is the part of a store that checkServices need.
type serviceNumbers interface {
	Services(ctx context.Context, names []string) (map[string]int32, error)
	KnownServices(ctx context.Context) (map[string]int32, error)
}

// checkServices finds the check services of the configuration that is in force.
type checkServices struct {
	store   serviceNumbers
	config  func() *config.Config
	now     func() time.Time
	turn    chan struct{}    // held while the two below are used
	numbers map[string]int32 // by name, of all services
	read    time.Time        // when
}

func newCheckServices(s serviceNumbers, c func() *config.Config) *checkServices {
	return &checkServices{store: s, config: c, now: time.Now, turn: make(chan struct{}, 1)}
}

// numbersAge is how long numbers are cached. A store never
// changes one, but a restored store may have lost the newest, and assign
// them to other services: the rows of one would be taken for another's. It is
// shorter than any restore.
const numbersAge = time.Second

func (s *checkServices) find(ctx context.Context, name string) (checks.Service, error) {
	all := s.config().Checks
	i := slices.IndexFunc(all, func(c config.Check) bool { return c.Current() == name || c.Service() == name })
	if i < 0 {
		return checks.Service{}, checkhttp.ErrNoService
	}
	found := assemble.CheckService(&all[i])
	var err error
	found.Number, err = s.number(ctx, found.Name)
	return found, err
}

// number returns the number of a service, and registers it if necessary.
func (s *checkServices) number(ctx context.Context, name string) (int32, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	now := s.now()
	if s.read.IsZero() || now.Sub(s.read) >= numbersAge {
		known, err := s.store.KnownServices(ctx)
		if err != nil {
			return 0, err
		}
		s.numbers, s.read = known, now
	}
	if n, known := s.numbers[name]; known {
		return n, nil
	}
	registered, err := s.store.Services(ctx, []string{name})
	if err != nil {
		return 0, err
	}
	s.numbers[name] = registered[name]
	return registered[name], nil
}
