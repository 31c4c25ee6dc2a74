package page

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/store"
)

// serviceSection serves the services.
type serviceSection struct{ *Page }

// servicePath is the address of a service's page.
func servicePath(name string) string { return "/service?name=" + url.QueryEscape(name) }

// serviceNames are the current names of renamed services, which everything else knows by their first ones.
type serviceNames struct {
	of      *config.Config
	renamed map[string]string
}

// current returns the current name of a service, as the files have it.
func (p *Page) current(name string) string {
	of := p.names.Load()
	if cfg := p.opt.Config(); of == nil || of.of != cfg {
		of = &serviceNames{cfg, cfg.Renamed()}
		p.names.Store(of)
	}
	return cmp.Or(of.renamed[name], name)
}

// customerOf returns the customer of a service.
func (p *Page) customerOf(service string) string {
	customer, _, _ := strings.Cut(p.current(service), "/")
	return customer
}

// suggestions are the names of services that a field proposes.
func (p *Page) suggestions() (names []string) {
	for _, s := range p.opt.Config().AllServices() {
		if names = append(names, s.Current); len(names) == maxNames {
			break
		}
	}
	return names
}

// serviceRow is one service.
type serviceRow struct {
	Name              string
	Delivers          bool                  // in this process
	Counted           bool                  // it is delivered here, and has counters of its own
	Decides           bool                  // this process decides, and it has counters of its own
	Health            operate.ServiceHealth // zero where all is well
	State             deliver.State
	Condition         deliver.Condition
	Lagging           bool // it catches up separately
	Delivered, Held   float64
	Pruned, Filtered  float64
	DeliveredRate     snapshot.Rate
	Pending           float64
	Reported          bool
	Oldest            time.Time     // of the queued changes, where it is known
	Age               time.Duration // from an event's entry to its delivery, mean
	Aged              bool
	Failures          float64
	FailuresPerMinute snapshot.Rate
	Dead              float64
	FailedShare       float64 // of attempts, 0 to 1
	Attempted         bool
}

// Path is the address of its page.
func (r serviceRow) Path() string { return servicePath(r.Name) }

// Class is how its state is painted.
func (r serviceRow) Class() string {
	switch {
	case r.Health.Service != "":
		return levelClass(r.Health.Level)
	case !r.Delivers:
		return "weak"
	}
	return "good"
}

// stateWords names the state of a service, and why it is paused.
func stateWords(s deliver.State, cause deliver.PauseCause) string {
	if cause == "" {
		return string(s)
	}
	return string(s) + ": " + string(cause)
}

type servicesBody struct {
	Rows              []serviceRow
	Customer, Q, Only string
	Customers         []string // at most maxNames
	Found, All        int      // services that the filter leaves, and all
	Address           string   // of the fragment
}

// maxServices bounds the listed services, and maxNames the names that a field proposes.
const (
	maxServices = 200
	maxNames    = 200
)

// rows returns the first services that keep accepts, the worst first, and how many it accepts.
func (p serviceSection) rows(keep func(string, operate.ServiceHealth) bool) (rows []serviceRow, found int, err error) {
	now, before, err := p.opt.History.Look()
	if err != nil {
		return nil, 0, err
	}
	conditions, health := p.opt.Conditions(), map[string]operate.ServiceHealth{}
	for _, s := range p.opt.Health().Services {
		health[s.Service] = s
	}
	per := now.Against(before)
	services := p.opt.Config().Services()
	var ranked [3][]string
	for _, c := range services {
		if h := health[c.Name]; keep(c.Name, h) {
			ranked[h.Level.Rank()] = append(ranked[h.Level.Rank()], c.Name)
			found++
		}
	}
	names := slices.Concat(ranked[2], ranked[1], ranked[0])
	for _, name := range names[:min(found, maxServices)] {
		s := now.Service(name)
		// Beyond a bound services are counted with their customer.
		shared := len(services) > servicelabel.Most && now.Services[name] == nil
		row := serviceRow{
			Name: name, Decides: p.runs("work") && !shared, Delivered: s.Delivered["delivered"], Held: s.Decisions[decide.DecisionHeldBack],
			Pruned: s.Decisions[decide.DecisionPruned], Filtered: s.Decisions[decide.DecisionFiltered],
			Lagging: s.Behind > 0, Pending: s.Pending, Reported: s.Reported, Oldest: s.Oldest, Failures: s.Failures, Dead: s.Delivered["dead"],
			DeliveredRate:     per(func(n *snapshot.Snapshot) float64 { return n.Service(name).Delivered["delivered"] }),
			FailuresPerMinute: per(func(n *snapshot.Snapshot) float64 { return 60 * n.Service(name).Failures }),
		}
		row.Condition, row.Delivers = conditions[name]
		row.Counted = row.Delivers && !shared
		row.State, row.Health = row.Condition.State, health[name]
		if !row.Counted {
			row.DeliveredRate, row.FailuresPerMinute = snapshot.Rate{}, snapshot.Rate{}
		}
		// The delay of the latest deliveries, if there are any.
		sum, n := s.AgeSum, s.AgeCount
		if before != nil {
			if was := before.Service(name); n > was.AgeCount {
				sum, n = sum-was.AgeSum, n-was.AgeCount
			}
		}
		if n > 0 {
			row.Aged, row.Age = true, time.Duration(sum/n*float64(time.Second))
		}
		if attempts := s.Failures + s.Delivered["delivered"]; attempts > 0 {
			row.Attempted, row.FailedShare = true, s.Failures/attempts
		}
		rows = append(rows, row)
	}
	return rows, found, nil
}

// list shows all.
func (p serviceSection) list(r *http.Request) (view, error) {
	b, err := p.load(r)
	return view{Title: "Services", Section: "/services", Live: true, Body: b}, err
}

func (p serviceSection) load(r *http.Request) (any, error) {
	q := r.URL.Query()
	b := servicesBody{Customer: q.Get("customer"), Q: q.Get("q"), Only: q.Get("only")}
	customers := map[string]bool{}
	var err error
	part := strings.ToLower(b.Q)
	b.Rows, b.Found, err = p.rows(func(name string, health operate.ServiceHealth) bool {
		b.All++
		customer := p.customerOf(name)
		customers[customer] = true
		return (b.Customer == "" || b.Customer == customer) && (b.Only != "unwell" || health.Service != "") && strings.Contains(strings.ToLower(p.current(name)), part)
	})
	b.Customers = slices.Sorted(maps.Keys(customers))
	b.Customers = b.Customers[:min(maxNames, len(b.Customers))]
	b.Address = "/live/services?" + query("customer", b.Customer, "q", b.Q, "only", b.Only)
	return b, err
}

// field is one member of a projected document.
type field struct{ Out, From string }

type serviceBody struct {
	Row      serviceRow
	Address  string // of the fragment
	Plots    plots
	Groups   []store.LetterGroup
	Letters  string             // why they cannot be shown
	Kept     bool               // attempts are kept
	Attempts []operate.Delivery // of late, the latest first
	Revision int64
	Kind     string // of its sink
	Keeps    string // state or log
	Target   string
	File     string // where it stands
	When     string
	Numbers  string
	Fields   []field
	Retry    string
	Open     int64
	Held     *operate.Held // by the guard, with samples
	Unread   string        // why there are no samples
}

// maxAttempts bounds the attempts that are shown.
const maxAttempts = 25

// maxGroups bounds the causes of dead letters that are shown.
const maxGroups = 50

// find returns a configured service.
func (p serviceSection) find(name string) (config.Service, bool) {
	all := p.opt.Config().Services()
	i := slices.IndexFunc(all, func(s config.Service) bool { return s.Name == name })
	if i < 0 {
		return config.Service{}, false
	}
	return all[i], true
}

// errNoService answers a request for a service that is not configured.
var errNoService = refusal(http.StatusNotFound, "There is no such service.")

// view shows one.
func (p serviceSection) view(r *http.Request) (view, error) {
	name := r.URL.Query().Get("name")
	s, known := p.find(name)
	if !known {
		return view{}, errNoService
	}
	row, err := p.row(r)
	if err != nil {
		return view{}, err
	}
	cfg := p.opt.Config()
	projection := &cfg.Projections[s.Projection]
	b := serviceBody{
		Row: row.(serviceRow), Address: "/live/service?name=" + url.QueryEscape(name), Plots: p.plotsOf(r, servicePath(name), "service", name),
		Kind: s.Delivery.Sink.Kind(), Keeps: s.Delivery.DeliveryMode(), Target: s.Delivery.Sink.Target(&cfg.Kafka.Cluster).Name,
		Kept: s.Delivery.History.Keep > 0, When: projection.When, Numbers: projection.Numbers, File: place(projection.Pos),
	}
	retry := s.Delivery.Retry
	b.Retry = fmt.Sprintf("for %s, waiting %s to %s", retry.For, retry.MinBackoff, retry.MaxBackoff)
	for _, f := range projection.Fields {
		b.Fields = append(b.Fields, field{f.Out, fieldFrom(f)})
	}
	for _, f := range projection.Carry {
		b.Fields = append(b.Fields, field{f.Out, fieldFrom(f) + ", carried"})
	}
	p.addHold(r, name, &b)
	if active, err := p.opt.Store.Active(r.Context()); err == nil {
		b.Revision = active.Number
	}
	b.Groups, err = p.opt.Store.GroupLetters(r.Context(), store.LetterFilter{Service: name, State: store.LetterOpen}, maxGroups)
	if err != nil {
		b.Letters = err.Error()
	}
	for _, g := range b.Groups {
		b.Open += g.Letters
	}
	// A service that delivered nothing yet has no attempts, and no number.
	if b.Attempts, err = operate.Deliveries(r.Context(), p.opt.Store, operate.DeliveryQuery{Service: name, Limit: maxAttempts}); err == nil {
		slices.Reverse(b.Attempts)
	} else if !errors.As(err, new(*operate.InvalidRequestError)) {
		return view{}, err
	}
	return view{Title: p.current(name), Section: "/services", Body: b}, nil
}

// addHold adds the guard's hold of a service, with samples where the log answers.
func (p serviceSection) addHold(r *http.Request, name string, b *serviceBody) {
	s := b.Row.Condition.Pause
	if s == nil || s.Hold == nil {
		return
	}
	b.Held = &operate.Held{Service: name, Since: s.Since, Why: s.Reason, Hold: *s.Hold}
	if held, err := operate.Hold(r.Context(), p.opt.Store, name); err != nil {
		b.Unread = err.Error()
	} else {
		b.Held = &held
	}
}

// fieldFrom says where a field's value comes from.
func fieldFrom(f config.Field) string {
	from := cmp.Or(f.Path, f.Expr)
	switch {
	case len(f.Each) > 0:
		return fmt.Sprintf("each element of %s, %d members", from, len(f.Each))
	case from == "":
		return "always " + cutText(string(f.Const), 80)
	case len(f.Default) > 0:
		return from + ", else " + cutText(string(f.Default), 80)
	}
	return from
}

// row returns the serviceRow of one.
func (p serviceSection) row(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	rows, _, err := p.rows(func(one string, _ operate.ServiceHealth) bool { return one == name })
	if err != nil || len(rows) == 0 {
		return nil, cmp.Or(err, store.ErrNotFound)
	}
	return rows[0], nil
}

// act pauses, resumes or probes one.
func (p serviceSection) act(w http.ResponseWriter, r *http.Request, who *session) error {
	name := r.PostForm.Get("service")
	why, err := reason(r)
	if err != nil {
		return err
	}
	if _, known := p.find(name); !known {
		return errNoService
	}
	switch do := r.PostForm.Get("do"); do {
	case "pause", "resume":
		if err := p.opt.Pause(r.Context(), name, do == "pause", who.Actor, why); err != nil {
			return err
		}
		if do == "pause" {
			who.setNotice("%s is paused in all processes. Its changes queue until it is resumed.", p.current(name))
		} else {
			who.setNotice("%s is resumed.", p.current(name))
		}
	case operate.Release, operate.Discard, operate.Extend:
		if _, err := operate.EndHold(r.Context(), p.opt.Store, name, do, who.Actor, why); err != nil {
			return err
		}
		who.setNotice("The hold of %s is ended in all processes within seconds (%s).", p.current(name), do)
	case "retry-now":
		if !p.opt.Probe(name) {
			return refusal(http.StatusConflict, "This process does not deliver the service: use the page of the process that does.")
		}
		who.setNotice("%s is retried now. The target's answer appears below.", name)
	default:
		return errNoAction
	}
	http.Redirect(w, r, servicePath(name), http.StatusSeeOther) // #nosec G710 -- a path of this page
	return nil
}

// errNoAction answers a form that names no known action.
var errNoAction = refusal(http.StatusBadRequest, "Choose what to do.")
