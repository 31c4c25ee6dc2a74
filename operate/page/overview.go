package page

import (
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
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
	Ready   bool
	NotYet  string // why not
	Stages  []stage
	API     *stage  // nil where the process does not serve it
	Letters []count // open, by stage
	Open    float64
}

// overviewNow looks at the process.
func (p *Page) overviewNow() (overviewBody, error) {
	b := overviewBody{Ready: true}
	if err := p.opt.Ready(); err != nil {
		b.Ready, b.NotYet = false, err.Error()
	}
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
				of("pruned", "not evaluated: nothing that the view reads changed", func(n *numbers) float64 { return n.Decisions["pruned"] }),
				of("held back", "evaluated, and equal to what the customer has", func(n *numbers) float64 { return n.Decisions["held"] }),
				of("passed", "changed for the customer", func(n *numbers) float64 { return n.Decisions["passed"] }),
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
			Name: "API", What: "producers and callers are answered", Waiting: now.OpenImports, WaitingFor: "imports queued or running: pipeline import list",
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
	Name                 string
	Delivers             bool // in this process
	State                deliver.State
	Behind               bool // it catches up apart from the others
	Sent, Held, Pruned   float64
	SentRate             rate
	Pending              float64
	Reported             bool
	Age                  time.Duration // from an event's entry to its delivery, mean
	Aged                 bool
	Failures             float64
	FailuresPerMinute    rate
	Dead                 float64
	FailedShare          float64 // of attempts, 0 to 1
	Attempted, Attention bool
}

func (p *Page) servicesNow() ([]serviceRow, error) {
	now, before, err := p.samples.look()
	if err != nil {
		return nil, err
	}
	states := p.opt.States()
	per := now.against(before)
	var rows []serviceRow
	for _, c := range p.opt.Config().Services() {
		s := now.service(c.Name)
		row := serviceRow{
			Name: c.Name, Sent: s.Delivered["delivered"], Held: s.Decisions["held"], Pruned: s.Decisions["pruned"],
			Behind: s.Behind > 0, Pending: s.Pending, Reported: s.Reported, Failures: s.Failures, Dead: s.Delivered["dead"],
			SentRate:          per(func(n *numbers) float64 { return n.service(c.Name).Delivered["delivered"] }),
			FailuresPerMinute: per(func(n *numbers) float64 { return 60 * n.service(c.Name).Failures }),
		}
		row.State, row.Delivers = states[c.Name]
		row.Attention = row.Delivers && row.State != deliver.StateRunning
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
