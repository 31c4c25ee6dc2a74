package pipeline

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/checks"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/frontdoor"
	"github.com/seed-86dfc502/weir/frontdoor/checkapi"
)

// mountChecks answers check services, those that a reload adds too. What it
// gives lets decisions under way end until ctx does.
func (p *Pipeline) mountChecks(server *frontdoor.Server) (stop func(ctx context.Context)) {
	checker := checks.New(checks.Options{
		Store: p.store, MaxWaiting: max(20_000, p.cfg.API.MaxRows), Timeout: p.cfg.API.Timeout.D(), Metrics: p.checkMetrics,
	})
	services := checkServices{p: p}
	checkapi.Mount(server, checkapi.Options{
		Checker: checker, Find: services.find, MaxRows: p.cfg.API.MaxRows, MaxEntity: int(p.cfg.Limits.EntityID), Logger: p.log,
	})
	return checker.Close
}

// checkServices finds the check services of the configuration that is in force.
type checkServices struct {
	p       *Pipeline
	numbers sync.Map // by name; the store never changes one
}

func (s *checkServices) find(ctx context.Context, name string) (checks.Service, error) {
	all := s.p.Config().Checks
	i := slices.IndexFunc(all, func(c config.Check) bool { return c.Service() == name })
	if i < 0 {
		return checks.Service{}, checkapi.ErrNoService
	}
	found := checks.Service{Name: name, Numbers: canonicaltree.Literal}
	if all[i].Numbers == config.Decimal {
		found.Numbers = canonicaltree.Decimal
	}
	number, known := s.numbers.Load(name)
	if !known {
		registered, err := s.p.store.Services(ctx, []string{name})
		if err != nil {
			return checks.Service{}, err
		}
		number = registered[name]
		s.numbers.Store(name, number)
	}
	found.Number = number.(int32)
	return found, nil
}
