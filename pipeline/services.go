package pipeline

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
)

// deliveries makes the services of settings that are new or changed since before, with their
// sinks. Without before it makes all.
func (st *workStage) deliveries(now, before *settings) ([]deliver.Service, error) {
	var services []deliver.Service
	made, known := st.sinks(now.cfg), before.delivered()
	for i, s := range now.cfg.Services() {
		number := now.plan.Services[i].Number
		if old, found := known[number]; found && sameDelivery(old, s) {
			continue
		}
		sink, err := made.New(s)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("service %s: %w", s.Name, err), closeSinks(services))
		}
		retry := s.Delivery.Retry
		services = append(services, deliver.Service{
			Name: s.Name, Number: number, Sink: sink, History: s.Delivery.History.Keep > 0,
			Guard: guardOf(s.Delivery.Guard), Pace: paceOf(s.Delivery.Pace), Refresh: s.Delivery.Refresh.D(),
			Retry: deliver.Retry{For: retry.For.D(), MinBackoff: retry.MinBackoff.D(), MaxBackoff: retry.MaxBackoff.D(), Later: retry.RedriveAfter.D()},
		})
	}
	return services, nil
}

func guardOf(g *config.Guard) deliver.Guard {
	return deliver.Guard{Retract: float64(g.Retract), Update: float64(g.Update), Min: int64(g.Min), Window: g.Window.D()}
}

func paceOf(p *config.Pace) deliver.Pace {
	return deliver.Pace{Rate: float64(p.Rate), Burst: p.Burst, Settle: p.Settle.D(), SettleMax: p.SettleMax.D()}
}

// difference returns the services that a reload changes, with the sinks of new ones.
func (st *workStage) difference(before, now *settings) (r deliver.Reconfiguration, err error) {
	r.Revision = now.plan.Revision
	if r.Add, err = st.deliveries(now, before); err != nil {
		return r, err
	}
	after := now.delivered()
	for number, old := range before.delivered() {
		if s, found := after[number]; !found || !sameDelivery(old, s) {
			r.Remove = append(r.Remove, number)
		}
	}
	return r, nil
}

// delivered returns the services of settings by number.
func (s *settings) delivered() map[int32]config.Service {
	all := map[int32]config.Service{}
	if s == nil {
		return all
	}
	for i, service := range s.cfg.Services() {
		all[s.plan.Services[i].Number] = service
	}
	return all
}

// sameDelivery reports whether two services are delivered alike, wherever their files have
// them. Their projections do not matter to their sinks.
func sameDelivery(a, b config.Service) bool {
	x, y := *a.Delivery, *b.Delivery
	x.Pos, y.Pos = config.Position{}, config.Position{}
	return a.Name == b.Name && reflect.DeepEqual(x, y)
}

func closeSinks(services []deliver.Service) (err error) {
	for _, s := range services {
		err = errors.Join(err, s.Sink.Close())
	}
	return err
}
