package page

import (
	"net/http"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
)

// count is one number of a stage with its rate.
type count struct {
	Name, Why string
	Total     float64
	Rate      rate
}

// stage is a column of the flow.
type stage struct {
	Name, What string
	Counts     []count
	Waiting    float64
	WaitingFor string
}

type overviewBody struct {
	Health  operate.Health
	Stages  []stage
	API     *stage  // nil where the process does not serve it
	Letters []count // open, by stage
	Open    float64
}

// overviewNow looks at the process.
func (p *Page) overviewNow() (overviewBody, error) {
	b := overviewBody{Health: p.opt.Health()}
	now, before, err := p.samples.look()
	if err != nil {
		return b, err
	}
	per := now.against(before)
	of := func(name, why string, pick func(*numbers) float64) count {
		return count{name, why, pick(now), per(pick)}
	}
	b.Stages = []stage{
		{
			Name: "Ingest", What: "events are taken in", Waiting: now.SourceLag, WaitingFor: "records of Kafka sources not taken in yet",
			Counts: []count{
				of("taken", "durable in the inbox", func(n *numbers) float64 { return n.Ingested["taken"] }),
				of("repeated", "stopped at the gate", func(n *numbers) float64 { return n.Ingested["repeated"] }),
				of("dead", "became dead letters", func(n *numbers) float64 { return n.Ingested["dead"] }),
			},
		},
		{
			Name: "Decide", What: "each customer's view is compared", Waiting: now.InboxLag, WaitingFor: "inbox records not decided yet",
			Counts: []count{
				of("records", "decided, of events and of operators", func(n *numbers) float64 { return total(n.Events) }),
				of("pruned", "not evaluated: nothing that the view reads changed", func(n *numbers) float64 { return n.Decisions[decide.DecisionPruned] }),
				of("filtered", "the filter keeps it out, and the customer has nothing of it", func(n *numbers) float64 { return n.Decisions[decide.DecisionFiltered] }),
				of("incomplete", "a required source has no document of it yet", func(n *numbers) float64 { return n.Decisions[decide.DecisionIncomplete] }),
				of("held back", "equal to what the customer has", func(n *numbers) float64 { return n.Decisions[decide.DecisionHeldBack] }),
				of("sent", "changed for the customer", func(n *numbers) float64 { return n.Decisions[decide.DecisionSent] }),
			},
		},
		{
			Name: "Deliver", What: "changes are sent to customers", Waiting: now.Pending, WaitingFor: "changes not delivered yet, at most",
			Counts: []count{
				of("delivered", "took effect at a sink", func(n *numbers) float64 { return n.Delivered["delivered"] }),
				of("replaced", "by a newer change before they were sent", func(n *numbers) float64 { return n.Delivered["coalesced"] + n.Delivered["overtaken"] }),
				of("failed attempts", "tried again, or dead", func(n *numbers) float64 { return n.Failures }),
			},
		},
	}
	if now.API {
		b.API = &stage{
			Name: "API", What: "producers and callers are answered", Waiting: now.OpenImports, WaitingFor: "imports queued or running: weir import list",
			Counts: []count{
				of("answered", "with 2xx", func(n *numbers) float64 { return n.Answers["2"] }),
				of("refused", "with 4xx: the request is wrong, or may not", func(n *numbers) float64 { return n.Answers["4"] }),
				of("failed", "with 5xx: to be sent again", func(n *numbers) float64 { return n.Answers["5"] }),
				of("repeated", "posted events whose key was used before", func(n *numbers) float64 { return n.Repeated }),
				of("undecided", "requests of check services that have to be sent again", func(n *numbers) float64 { return n.Undecided }),
				of("imports done", "worked to their end here", func(n *numbers) float64 { return n.ImportsEnded["done"] }),
				of("imports failed", "ended for a reason that is not a row's", func(n *numbers) float64 { return n.ImportsEnded["failed"] }),
			},
		}
	}
	for _, s := range []string{"ingest", "decide", "deliver"} {
		b.Letters = append(b.Letters, count{Name: s, Total: now.Letters[s]})
		b.Open += now.Letters[s]
	}
	return b, nil
}

func (p *Page) overview(w http.ResponseWriter, r *http.Request, who *session) {
	b, err := p.overviewNow()
	if err != nil {
		p.trouble(w, r, err)
		return
	}
	p.show(w, http.StatusOK, "overview", view{Title: "Overview", Section: "/", Who: who, Live: true, Body: b})
}

func (p *Page) overviewLive(w http.ResponseWriter, r *http.Request, _ *session) {
	b, err := p.overviewNow()
	if err != nil {
		http.Error(w, "the metrics cannot be read", http.StatusInternalServerError)
		return
	}
	p.render(w, http.StatusOK, "live", "overview-live", b)
}

// serviceRow is one service.
type serviceRow struct {
	Name              string
	Delivers          bool                  // in this process
	Health            operate.ServiceHealth // zero where all is well
	State             deliver.State
	Behind            bool // it catches up apart from the others
	Delivered, Held   float64
	Pruned, Filtered  float64
	DeliveredRate     rate
	Pending           float64
	Reported          bool
	Age               time.Duration // from an event's entry to its delivery, mean
	Aged              bool
	Failures          float64
	FailuresPerMinute rate
	Dead              float64
	FailedShare       float64 // of attempts, 0 to 1
	Attempted         bool
}

func (p *Page) servicesNow() ([]serviceRow, error) {
	now, before, err := p.samples.look()
	if err != nil {
		return nil, err
	}
	conditions, health := p.opt.Conditions(), map[string]operate.ServiceHealth{}
	for _, s := range p.opt.Health().Services {
		health[s.Service] = s
	}
	per := now.against(before)
	var rows []serviceRow
	for _, c := range p.opt.Config().Services() {
		s := now.service(c.Name)
		row := serviceRow{
			Name: c.Name, Delivered: s.Delivered["delivered"], Held: s.Decisions[decide.DecisionHeldBack],
			Pruned: s.Decisions[decide.DecisionPruned], Filtered: s.Decisions[decide.DecisionFiltered],
			Behind: s.Behind > 0, Pending: s.Pending, Reported: s.Reported, Failures: s.Failures, Dead: s.Delivered["dead"],
			DeliveredRate:     per(func(n *numbers) float64 { return n.service(c.Name).Delivered["delivered"] }),
			FailuresPerMinute: per(func(n *numbers) float64 { return 60 * n.service(c.Name).Failures }),
		}
		condition, delivers := conditions[c.Name]
		row.State, row.Delivers, row.Health = condition.State, delivers, health[c.Name]
		// The age of late, where something was delivered of late.
		sum, n := s.AgeSum, s.AgeCount
		if before != nil {
			if was := before.service(c.Name); n > was.AgeCount {
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
	slices.SortStableFunc(rows, func(a, b serviceRow) int { return b.Health.Level.Rank() - a.Health.Level.Rank() })
	return rows, nil
}

func (p *Page) services(w http.ResponseWriter, r *http.Request, who *session) {
	rows, err := p.servicesNow()
	if err != nil {
		p.trouble(w, r, err)
		return
	}
	p.show(w, http.StatusOK, "services", view{Title: "Services", Section: "/services", Who: who, Live: true, Body: rows})
}

func (p *Page) servicesLive(w http.ResponseWriter, r *http.Request, _ *session) {
	rows, err := p.servicesNow()
	if err != nil {
		http.Error(w, "the metrics cannot be read", http.StatusInternalServerError)
		return
	}
	p.render(w, http.StatusOK, "live", "services-live", rows)
}
