package page

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

// count is one number of a stage with its rate.
type count struct {
	Name, Why string
	Total     float64
	Rate      snapshot.Rate
}

// stage is a column of the numbers.
type stage struct {
	Name, What string
	Away       bool // other processes run it
	Counts     []count
	Waiting    float64
	WaitingFor string
}

// tile is one number that says how things are.
type tile struct{ Name, Value, Unit, Says, Class, Href string }

type overviewBody struct {
	Health   operate.Health
	Problems []problem
	More     int // problems not listed
	Tiles    []tile
	Pictures []picture
	Stages   []stage
	API      *stage  // nil where the process does not serve it
	Letters  []count // open, by stage
	Open     float64
}

// maxProblems bounds the problems listed; the list of services has all.
const maxProblems = 6

// load looks at the process.
func (p overviewSection) load() (overviewBody, error) {
	b := overviewBody{Health: p.opt.Health()}
	now, before, err := p.opt.History.Look()
	if err != nil {
		return b, err
	}
	per := now.Against(before)
	of := func(name, why string, pick func(*snapshot.Snapshot) float64) count {
		return count{name, why, pick(now), per(pick)}
	}
	b.Stages = []stage{
		{
			Name: "Ingest", What: "events are taken in", Waiting: now.SourceLag, WaitingFor: "records of sources not taken in yet",
			Counts: []count{
				of("taken", "durable in the inbox", (*snapshot.Snapshot).Taken),
				of("repeated", "stopped at the gate", (*snapshot.Snapshot).Repeated),
				of("dead", "became dead letters", func(n *snapshot.Snapshot) float64 { return n.Ingested["dead"] }),
			},
		},
		{
			Name: "Decide", What: "each customer's view is compared", Waiting: now.InboxLag, WaitingFor: "inbox records not decided yet",
			Counts: []count{
				of("records", "decided, of events and of operators", func(n *snapshot.Snapshot) float64 { return snapshot.Total(n.Events) }),
				of("pruned", "not evaluated: nothing that the view reads changed", func(n *snapshot.Snapshot) float64 { return n.Decisions[decide.DecisionPruned] }),
				of("filtered", "the filter keeps it out, and the customer has nothing of it", func(n *snapshot.Snapshot) float64 { return n.Decisions[decide.DecisionFiltered] }),
				of("incomplete", "a required source has no document of it yet", func(n *snapshot.Snapshot) float64 { return n.Decisions[decide.DecisionIncomplete] }),
				of("held back", "equal to what the customer has", func(n *snapshot.Snapshot) float64 { return n.Decisions[decide.DecisionHeldBack] }),
				of("sent", "changed for the customer", func(n *snapshot.Snapshot) float64 { return n.Decisions[decide.DecisionSent] }),
			},
		},
		{
			Name: "Deliver", What: "changes are sent to customers", Waiting: now.Pending, WaitingFor: "changes not delivered yet, at most",
			Counts: []count{
				of("delivered", "took effect at a sink", func(n *snapshot.Snapshot) float64 { return n.Delivered["delivered"] }),
				of("replaced", "by a newer change before they were sent", func(n *snapshot.Snapshot) float64 { return n.Delivered["coalesced"] + n.Delivered["overtaken"] }),
				of("failed attempts", "tried again, or dead", func(n *snapshot.Snapshot) float64 { return n.Failures }),
			},
		},
	}
	if now.API {
		b.API = &stage{
			Name: "API", What: "producers and callers are answered",
			Counts: []count{
				of("answered", "with 2xx", func(n *snapshot.Snapshot) float64 { return n.Answers["2"] }),
				of("refused", "with 4xx: the request is wrong, or may not", func(n *snapshot.Snapshot) float64 { return n.Answers["4"] }),
				of("failed", "with 5xx: to be sent again", func(n *snapshot.Snapshot) float64 { return n.Answers["5"] }),
				of("repeated", "posted events whose key was used before", func(n *snapshot.Snapshot) float64 { return n.Replayed }),
				of("undecided", "requests of check services that have to be sent again", func(n *snapshot.Snapshot) float64 { return n.Undecided }),
			},
		}
	}
	for i, s := range []string{"ingest", "decide", "deliver"} {
		b.Stages[i].Away = !p.runs(s)
		b.Letters = append(b.Letters, count{Name: s, Total: now.Letters[s]})
		b.Open += now.Letters[s]
	}
	b.Problems = problemsOf(b.Health)
	if len(b.Problems) > maxProblems {
		b.Problems, b.More = b.Problems[:maxProblems], len(b.Problems)-maxProblems
	}
	flow := p.flowNodes(now, before, b.Health)
	b.Pictures = []picture{flow.drawWide(), flow.drawNarrow()}
	b.Tiles = p.tiles(now, per, b.Open)
	return b, nil
}

// tiles are the numbers that one looks at first.
func (p overviewSection) tiles(now *snapshot.Snapshot, per rates, open float64) []tile {
	flow := func(name, role string, pick func(*snapshot.Snapshot) float64) tile {
		if !p.runs(role) {
			return tile{Name: name, Value: "–", Says: "not in this process"}
		}
		return tile{Name: name, Value: rateText(per(pick)), Unit: "/s", Says: comma(pick(now)) + " in all"}
	}
	taken := flow("taken in", "ingest", (*snapshot.Snapshot).Taken)
	delivered := flow("delivered", "deliver", func(n *snapshot.Snapshot) float64 { return n.Delivered["delivered"] })
	saved := tile{Name: "never sent", Value: "–", Says: "of the possible sends were duplicates"}
	if share, known := heldShare(now); known {
		saved.Value, saved.Unit = fmt.Sprintf("%.1f", 100*share), "%"
	}
	var where []string
	for _, x := range [][2]string{{"ingest", "at sources"}, {"decide", "in the inbox"}, {"deliver", "for customers"}} {
		if p.runs(x[0]) {
			where = append(where, x[1])
		}
	}
	waiting := tile{Name: "waiting", Value: comma(now.SourceLag + now.InboxLag + now.Pending), Says: strings.Join(where, ", ")}
	letters := tile{Name: "dead letters", Value: comma(open), Says: "open", Href: "/letters"}
	if open > 0 {
		letters.Class = "warn"
	}
	return []tile{taken, delivered, saved, waiting, letters}
}

func (p overviewSection) view(w http.ResponseWriter, r *http.Request, who *session) {
	b, err := p.load()
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	p.show(w, http.StatusOK, "overview", view{Title: "Overview", Section: "/", Session: who, Live: true, Body: b})
}

func (p overviewSection) live(w http.ResponseWriter, r *http.Request, _ *session) {
	b, err := p.load()
	p.fragment(w, "overview-live", b, err)
}
