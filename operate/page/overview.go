package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

// overviewSection serves the overview.
type overviewSection struct{ *Page }

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
	Queued     float64
	QueuedWhat string
}

// tile is one main number.
type tile struct{ Name, Value, Unit, Says, Class, Href string }

type overviewBody struct {
	Health   operate.Health
	Problems []problem
	More     int // problems not listed
	Tiles    []tile
	Flow     nodes
	Picture  picture
	Stages   []stage
}

// maxProblems bounds the problems listed; the list of services has all.
const maxProblems = 6

// load looks at the process.
func (p overviewSection) load(*http.Request) (any, error) {
	now, before, err := p.opt.History.Look()
	if err != nil {
		return nil, err
	}
	b := overviewBody{Health: p.opt.Health()}
	b.Problems = p.problems(now, b.Health)
	if len(b.Problems) > maxProblems {
		b.Problems, b.More = b.Problems[:maxProblems], len(b.Problems)-maxProblems
	}
	b.Flow = p.flowNodes(now, before, b.Health)
	b.Picture, b.Tiles, b.Stages = b.Flow.draw(), p.tiles(now, now.Against(before)), p.stages(now, now.Against(before))
	return b, nil
}

// stages are all numbers, by stage.
func (p overviewSection) stages(now *snapshot.Snapshot, per rates) []stage {
	of := func(name, why string, pick func(*snapshot.Snapshot) float64) count {
		return count{name, why, pick(now), per(pick)}
	}
	decided := func(name, why, decision string) count {
		return of(name, why, func(n *snapshot.Snapshot) float64 { return n.Decisions[decision] })
	}
	answered := func(name, why, digit string) count {
		return of(name, why, func(n *snapshot.Snapshot) float64 { return n.Answers[digit] })
	}
	all := []stage{
		{"Ingest", "events are ingested", !p.runs("ingest"), []count{
			of("ingested", "durable in the inbox", (*snapshot.Snapshot).Taken),
			of("repeated", "rejected by the gate", (*snapshot.Snapshot).Repeated),
			of("dead", "became dead letters", func(n *snapshot.Snapshot) float64 { return n.Ingested["dead"] }),
		}, now.SourceLag, "records queued at sources"},
		{"Decide", "each customer's view is compared", !p.runs("decide"), []count{
			of("records", "decided, of events and of operators", func(n *snapshot.Snapshot) float64 { return snapshot.Total(n.Events) }),
			decided("pruned", "not evaluated: no change of a path that the view reads", decide.DecisionPruned),
			decided("filtered", "excluded by the filter, and unknown to the customer", decide.DecisionFiltered),
			decided("incomplete", "without a document of a required source", decide.DecisionIncomplete),
			decided("held back", "equal to the customer's last one", decide.DecisionHeldBack),
			decided("sent", "changed for the customer", decide.DecisionSent),
		}, now.InboxLag, "records queued in the inbox"},
		{"Deliver", "changes are sent to customers", !p.runs("deliver"), []count{
			of("delivered", "took effect at a target", func(n *snapshot.Snapshot) float64 { return n.Delivered["delivered"] }),
			of("replaced", "by a newer change before delivery", func(n *snapshot.Snapshot) float64 { return n.Delivered["coalesced"] + n.Delivered["overtaken"] }),
			of("failed attempts", "retried, or dead", func(n *snapshot.Snapshot) float64 { return n.Failures }),
		}, now.Pending, "changes queued, at most"},
	}
	if !now.API {
		return all
	}
	return append(all, stage{Name: "API", What: "producers and callers are answered", Counts: []count{
		answered("answered", "with 2xx", "2"), answered("refused", "with 4xx: a wrong or forbidden request", "4"), answered("failed", "with 5xx: to be sent again", "5"),
		of("repeated", "posted events with a used key", func(n *snapshot.Snapshot) float64 { return n.Replayed }),
		of("undecided", "requests of check services, to be sent again", func(n *snapshot.Snapshot) float64 { return n.Undecided }),
	}})
}

// tiles are the main numbers.
func (p overviewSection) tiles(now *snapshot.Snapshot, per rates) []tile {
	flow := func(name, role string, pick func(*snapshot.Snapshot) float64) tile {
		if !p.runs(role) {
			return tile{Name: name, Value: "–", Says: "not in this process"}
		}
		return tile{Name: name, Value: rateText(per(pick)), Unit: "/s", Says: comma(pick(now)) + " in all"}
	}
	saved := tile{Name: "never sent", Value: "–", Says: "of the possible sends"}
	if share, known := heldShare(now); known {
		saved.Value, saved.Unit = fmt.Sprintf("%.1f", 100*share), "%"
	}
	var where []string
	for _, x := range [][2]string{{"ingest", "at sources"}, {"decide", "in the inbox"}, {"deliver", "for customers"}} {
		if p.runs(x[0]) {
			where = append(where, x[1])
		}
	}
	open := snapshot.Total(now.Letters)
	letters := tile{Name: "dead letters", Value: comma(open), Says: "open", Href: "/letters"}
	if open > 0 {
		letters.Class = "warn"
	}
	return []tile{
		flow("ingested", "ingest", (*snapshot.Snapshot).Taken), flow("delivered", "deliver", func(n *snapshot.Snapshot) float64 { return n.Delivered["delivered"] }),
		saved, {Name: "queued", Value: comma(now.SourceLag + now.InboxLag + now.Pending), Says: strings.Join(where, ", ")}, letters,
	}
}

// heldShare is the share of possible sends without news for the customer.
func heldShare(s *snapshot.Snapshot) (share float64, known bool) {
	saved := s.Decisions[decide.DecisionPruned] + s.Decisions[decide.DecisionHeldBack]
	all := saved + s.Decisions[decide.DecisionSent]
	if all == 0 {
		return 0, false
	}
	return saved / all, true
}

// problem is a line of the list of problems.
type problem struct {
	operate.ServiceHealth
	What, Href string
	Queued     float64
	Oldest     time.Time // of the queued changes, where it is known
}

// problems lists the problems of a process, the worst first.
func (p overviewSection) problems(now *snapshot.Snapshot, health operate.Health) (all []problem) {
	if health.Level == operate.LevelDown {
		all = append(all, problem{ServiceHealth: operate.ServiceHealth{Level: operate.LevelDown, Error: health.Error, Since: health.Since, NextTry: health.NextTry, Do: health.Do}, What: "this process"})
	}
	for _, i := range slices.Concat(health.Problems, health.Pending) {
		href := ""
		if name, is := strings.CutPrefix(i.What, "source "); is {
			href = "/sources/" + url.PathEscape(name)
		} else if strings.HasPrefix(i.What, "dead letters ") {
			href = "/letters"
		}
		all = append(all, problem{
			ServiceHealth: operate.ServiceHealth{Level: i.Level, Error: i.Why, Since: i.Since, NextTry: i.NextTry, Do: i.Do}, What: i.What, Href: href, Queued: float64(i.Queued),
		})
	}
	conditions := p.opt.Conditions()
	for _, s := range health.Services {
		c, counts := conditions[s.Service], now.Service(s.Service)
		x := problem{ServiceHealth: s, What: s.Service, Href: servicePath(s.Service), Queued: counts.Pending, Oldest: c.Parked.Oldest}
		if x.Oldest.IsZero() {
			x.Oldest = counts.Oldest
		}
		all = append(all, x)
	}
	slices.SortStableFunc(all, func(a, b problem) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	return all
}
