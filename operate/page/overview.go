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

// tile is one main number.
type tile struct{ Name, Value, Unit, Says, Class, Href string }

type overviewBody struct {
	Health   operate.Health
	Problems []problem
	More     int // problems not listed
	Down     int // problems
	Tiles    []tile
	Flow     nodes
	Picture  picture
}

// maxProblems bounds the listed problems. The list of services shows all.
const maxProblems = 6

func (p overviewSection) view(r *http.Request) (view, error) {
	b, err := p.load(r)
	return view{Title: "Overview", Section: "/", Live: true, Body: b}, err
}

// load looks at the process.
func (p overviewSection) load(*http.Request) (any, error) {
	now, before, err := p.opt.History.Look()
	if err != nil {
		return nil, err
	}
	b := overviewBody{Health: p.opt.Health()}
	b.Problems = p.problems(now, b.Health)
	for i := range b.Problems {
		if b.Problems[i].Level == operate.LevelDown {
			b.Down += 1 + b.Problems[i].Others
		}
	}
	if len(b.Problems) > maxProblems {
		b.Problems, b.More = b.Problems[:maxProblems], len(b.Problems)-maxProblems
	}
	b.Flow = p.flowNodes(now, before, b.Health)
	b.Picture, b.Tiles = b.Flow.draw(), p.tiles(now, now.Against(before))
	return b, nil
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
	for _, x := range [][2]string{{"ingest", "at sources"}, {"work", "in the inbox"}, {"work", "for customers"}} {
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
		flow("ingested", "ingest", (*snapshot.Snapshot).Taken), flow("delivered", "work", func(n *snapshot.Snapshot) float64 { return n.Delivered["delivered"] }),
		saved, {Name: "queued", Value: comma(now.SourceLag + now.InboxLag + now.Pending), Says: "at most, " + strings.Join(where, ", ")}, letters,
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
	AtMost     bool      // Queued is a bound
	Oldest     time.Time // of the queued changes, where it is known
	Others     int       // services with the same error
}

// problems lists the problems of a process, the worst first.
func (p overviewSection) problems(now *snapshot.Snapshot, health operate.Health) (all []problem) {
	if health.Level == operate.LevelDown {
		all = append(all, problem{ServiceHealth: operate.ServiceHealth{Level: operate.LevelDown, Error: health.Error, Since: health.Since, NextTry: health.NextTry, Do: health.Do}, What: "this process"})
	}
	cause := map[string][]string{"store": {"store"}, "disk": {"store"}, "topic": {"kafka", "topic "}}[health.Reason]
	for _, i := range slices.Concat(health.Problems, health.Pending) {
		if slices.ContainsFunc(cause, func(c string) bool { return strings.HasPrefix(i.What, c) }) {
			continue // the process's line tells it
		}
		href := ""
		if name, is := strings.CutPrefix(i.What, "source "); is {
			href = "/sources/" + url.PathEscape(name)
		} else if strings.HasPrefix(i.What, "dead letters ") {
			href = "/letters"
		}
		all = append(all, problem{
			ServiceHealth: operate.ServiceHealth{Level: i.Level, Error: i.Why, Since: i.Since, NextTry: i.NextTry, Do: i.Do}, What: i.What, Href: href, Queued: float64(i.Queued), AtMost: i.AtMost,
		})
	}
	conditions := p.opt.Conditions()
	for _, s := range health.Services {
		c, counts := conditions[s.Service], now.Service(s.Service)
		x := problem{ServiceHealth: s, What: p.current(s.Service), Href: servicePath(s.Service), Queued: counts.Pending, AtMost: true, Oldest: c.Parked.Oldest}
		if x.Oldest.IsZero() {
			x.Oldest = counts.Oldest
		}
		same := func(o problem) bool {
			return x.Error != "" && !x.Waits() && x.Refused == 0 && o.Service != "" && o.State == x.State && o.Level == x.Level && o.Error == x.Error
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Others++
			all[i].Queued += x.Queued
			continue
		}
		all = append(all, x)
	}
	slices.SortStableFunc(all, func(a, b problem) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	return all
}
