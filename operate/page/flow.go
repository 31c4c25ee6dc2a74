package page

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

// overviewSection serves the overview.
type overviewSection struct{ *Page }

// Bounds of the picture: nodes beyond them are summed up in one box.
const (
	flowSources   = 7
	flowCustomers = 9
	flowName      = 24 // characters of a name in it
)

// node is a source, a stage or a group of services.
type node struct {
	Name, Full, Href string
	Says             string // in a few words below the name
	Level            operate.Level
	Away             bool // other processes do this
	rate             float64
}

// Class is how a node is painted.
func (n node) Class() string {
	if n.Away {
		return "node away"
	}
	return "node " + levelClass(n.Level)
}

func levelClass(l operate.Level) string {
	switch l {
	case operate.LevelDown:
		return "bad"
	case operate.LevelDegraded:
		return "warn"
	}
	return "good"
}

// box is a node with its place in a picture, edge what runs between two.
type (
	box struct {
		node
		X, Y, W, H    int
		TextX         int
		NameY, SaysY  int
		Stage, Linked bool
	}
	edge struct{ Path, Width, Class string }
	// picture is a drawing of the flow.
	picture struct {
		Width, Height int
		Class         string
		Edges         []edge
		Boxes         []box
	}
)

// nodes are the three columns of the flow.
type nodes struct{ sources, stages, customers []node }

// thickness is the width of a line for a rate: it grows with its logarithm, since
// rates differ by orders of magnitude.
func thickness(rate float64) string {
	if rate <= 0 {
		return "1.5"
	}
	return strconv.FormatFloat(min(16, 2+3*math.Log10(1+rate)), 'f', 1, 64)
}

// rates returns the rate of the counter that a function picks.
type rates func(func(*snapshot.Snapshot) float64) snapshot.Rate

func (p overviewSection) flowNodes(now, before *snapshot.Snapshot, health operate.Health) nodes {
	per := rates(now.Against(before))
	return nodes{p.sourceNodes(now, per, health), p.stageNodes(now, per, health), p.customerNodes(now, per, health)}
}

// flowNode returns a node with a throughput and a backlog.
func flowNode(name string, r snapshot.Rate, waiting float64) node {
	x := node{Name: name, Says: rateText(r) + "/s", rate: r.PerSecond, Level: operate.LevelOK}
	if waiting > 0 {
		x.Says += " · " + comma(waiting) + " waiting"
	}
	return x
}

// markStalled makes a node amber that has a backlog and makes no progress.
func (n *node) markStalled(r snapshot.Rate, waiting float64) {
	if waiting > 0 && r.Known && r.PerSecond == 0 {
		n.Level = operate.LevelDegraded
	}
}

// markElsewhere marks a node whose work other processes do.
func (n *node) markElsewhere(says string) {
	n.Away, n.Says, n.rate, n.Level = true, says, 0, operate.LevelOK
}

func (p overviewSection) sourceNodes(now *snapshot.Snapshot, per rates, health operate.Health) (all []node) {
	failing := sourceErrors(health)
	for _, name := range p.sourceNames() {
		r, waiting := per(func(s *snapshot.Snapshot) float64 { return s.Source(name).Taken }), now.Source(name).Lag
		x := flowNode(name, r, waiting)
		x.Href = "/sources/" + url.PathEscape(name)
		x.markStalled(r, waiting)
		switch {
		case !p.runs("ingest"):
			x.markElsewhere("not read here")
		case failing[name] != "":
			x.Level, x.Says = operate.LevelDown, "cannot be read"
		}
		all = append(all, x)
	}
	return summed(all, flowSources, "sources", "/sources")
}

func (p overviewSection) stageNodes(now *snapshot.Snapshot, per rates, health operate.Health) []node {
	stage := func(name string, r snapshot.Rate, waiting float64) node {
		x := flowNode(name, r, waiting)
		x.markStalled(r, waiting)
		if health.Level == operate.LevelDown && name != "Deliver" {
			x.Level = operate.LevelDown
		}
		if !p.runs(strings.ToLower(name)) {
			x.Href = "/system"
			x.markElsewhere("not in this process")
		}
		return x
	}
	ingest := stage("Ingest", per(func(s *snapshot.Snapshot) float64 { return snapshot.Total(s.Ingested) + snapshot.Total(s.Rows) }), 0)
	decided := stage("Decide", per(func(s *snapshot.Snapshot) float64 { return snapshot.Total(s.Events) }), now.InboxLag)
	delivered := stage("Deliver", per(func(s *snapshot.Snapshot) float64 { return s.Delivered["delivered"] }), now.Pending)
	return []node{ingest, decided, delivered}
}

func (p overviewSection) customerNodes(now *snapshot.Snapshot, per rates, health operate.Health) (nodes []node) {
	bad := map[string]operate.Level{}
	for _, s := range health.Services {
		customer, _, _ := strings.Cut(s.Service, "/")
		if s.Level.Rank() > bad[customer].Rank() {
			bad[customer] = s.Level
		}
	}
	services := map[string][]string{}
	for _, s := range p.opt.Config().Services() {
		customer, _, _ := strings.Cut(s.Name, "/")
		services[customer] = append(services[customer], s.Name)
	}
	for customer, all := range services {
		sum := func(f func(*snapshot.Service) float64) func(*snapshot.Snapshot) float64 {
			return func(s *snapshot.Snapshot) (total float64) {
				for _, name := range all {
					total += f(s.Service(name))
				}
				return total
			}
		}
		r := per(sum(func(s *snapshot.Service) float64 { return s.Delivered["delivered"] }))
		x := flowNode(customer, r, sum(func(s *snapshot.Service) float64 { return s.Pending })(now))
		x.Href = "/services?customer=" + url.QueryEscape(customer)
		if len(all) == 1 {
			x.Href = servicePath(all[0])
		}
		if level, is := bad[customer]; is {
			x.Level = level
		}
		if !p.runs("deliver") {
			x.markElsewhere("not delivered here")
		}
		nodes = append(nodes, x)
	}
	return summed(nodes, flowCustomers, "customers", "/services")
}

// summed sorts nodes, those that are stuck first, then the busiest, and makes one of
// those that are too many.
func summed(all []node, most int, what, href string) []node {
	slices.SortFunc(all, func(a, b node) int {
		return cmp.Or(b.Level.Rank()-a.Level.Rank(), cmp.Compare(b.rate, a.rate), cmp.Compare(a.Name, b.Name))
	})
	if len(all) > most {
		rest := node{Name: fmt.Sprintf("%d more %s", len(all)-most+1, what), Href: href, Level: operate.LevelOK}
		for _, x := range all[most-1:] {
			rest.rate += x.rate
			if x.Level.Rank() > rest.Level.Rank() {
				rest.Level = x.Level
			}
		}
		rest.Says, rest.Away = rateText(snapshot.Rate{Known: true, PerSecond: rest.rate})+"/s together", all[0].Away
		if rest.Away {
			rest.Says = all[0].Says
		}
		all = append(slices.Clone(all[:most-1]), rest)
	}
	for i := range all {
		all[i].Full = all[i].Name
		if r := []rune(all[i].Name); len(r) > flowName {
			all[i].Name = string(r[:flowName-1]) + "…"
		}
	}
	return all
}

func (n node) at(x, y, w, h int, stage bool) box {
	b := box{node: n, X: x, Y: y, W: w, H: h, TextX: x + 14, NameY: y + h/2 - 4, SaysY: y + h/2 + 15, Stage: stage, Linked: n.Href != ""}
	if b.Full == "" {
		b.Full = b.Name
	}
	return b
}

func edgeOf(path string, rate float64, level operate.Level) edge {
	class := "edge"
	switch {
	case level != operate.LevelOK:
		class += " " + levelClass(level)
	case rate <= 0:
		class += " still"
	}
	return edge{path, thickness(rate), class}
}

// drawWide draws the flow from left to right.
func (n nodes) drawWide() picture {
	const (
		rowH, gap = 54, 14
		sideW     = 236
		stageW    = 184
		stageH    = 84
		width     = 1240
	)
	rows := max(len(n.sources), len(n.customers), 2)
	p := picture{Width: width, Height: rows*(rowH+gap) - gap + 4, Class: "wide-picture"}
	middle := p.Height / 2
	column := func(all []node, x int) (boxes []box) {
		top := middle - (len(all)*(rowH+gap)-gap)/2
		for i, each := range all {
			boxes = append(boxes, each.at(x, top+i*(rowH+gap), sideW, rowH, false))
		}
		return boxes
	}
	left, right := column(n.sources, 1), column(n.customers, width-sideW-1)
	var stages []box
	for i, s := range n.stages {
		stages = append(stages, s.at(sideW+66+i*(stageW+40), middle-stageH/2, stageW, stageH, true))
	}
	curve := func(x1, y1, x2, y2 int) string {
		bend := (x2 - x1) / 2
		return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
	}
	// Where the i-th of n lines meets a stage.
	meets := func(i, n int) int { return middle + (2*i-n+1)*min(stageH-24, 10*n)/(2*max(1, n)) }
	for i, b := range left {
		p.Edges = append(p.Edges, edgeOf(curve(b.X+b.W, b.Y+b.H/2, stages[0].X, meets(i, len(left))), b.rate, b.Level))
	}
	for i := range stages[:2] {
		a, b := stages[i], stages[i+1]
		p.Edges = append(p.Edges, edgeOf(fmt.Sprintf("M%d %dH%d", a.X+a.W, middle, b.X), min(a.rate, b.rate), b.Level))
	}
	for i, b := range right {
		p.Edges = append(p.Edges, edgeOf(curve(stages[2].X+stageW, meets(i, len(right)), b.X, b.Y+b.H/2), b.rate, b.Level))
	}
	p.Boxes = slices.Concat(left, stages, right)
	return p
}

// drawNarrow draws the flow from top to bottom, along a line at the left.
func (n nodes) drawNarrow() picture {
	const (
		rowH, gap = 52, 12
		rail      = 14
		boxX      = 40
		width     = 344
	)
	p := picture{Width: width, Class: "narrow-picture"}
	y := 2
	last := -1
	before := operate.LevelOK
	rate := 0.0
	for part, all := range [][]node{n.sources, n.stages, n.customers} {
		rest := 0.0
		for _, x := range all {
			rest += x.rate
		}
		for _, each := range all {
			b := each.at(boxX, y, width-boxX-2, rowH, part == 1)
			center := y + rowH/2
			if last >= 0 {
				through := rate
				if part == 2 {
					through = rest
				}
				p.Edges = append(p.Edges, edgeOf(fmt.Sprintf("M%d %dV%d", rail, last, center), through, before))
			}
			p.Edges = append(p.Edges, edgeOf(fmt.Sprintf("M%d %dH%d", rail, center, boxX), each.rate, each.Level))
			switch part {
			case 0:
				rate += each.rate
			case 1:
				rate, before = each.rate, each.Level
			default:
				rest -= each.rate
				before = operate.LevelOK
			}
			last = center
			p.Boxes = append(p.Boxes, b)
			y += rowH + gap
		}
	}
	p.Height = y - gap + 2
	return p
}

// problem is a line of the section that names what needs attention.
type problem struct {
	operate.ServiceHealth
	What, Href string
	NextTry    time.Time
}

// sourceErrors returns why sources are blocked, by name.
func sourceErrors(health operate.Health) map[string]string {
	all := map[string]string{}
	for _, i := range health.Problems {
		if name, is := strings.CutPrefix(i.What, "source "); is {
			all[name] = i.Why
		}
	}
	return all
}

// problemsOf lists the problems of a process, the worst first.
func problemsOf(health operate.Health) (all []problem) {
	if health.Level == operate.LevelDown {
		all = append(all, problem{ServiceHealth: operate.ServiceHealth{Level: operate.LevelDown, Error: health.Error, Since: health.Since, Do: health.Do}, What: "this process"})
	}
	for _, i := range slices.Concat(health.Problems, health.Pending) {
		href := ""
		if name, is := strings.CutPrefix(i.What, "source "); is {
			href = "/sources/" + url.PathEscape(name)
		} else if strings.HasPrefix(i.What, "dead letters ") {
			href = "/letters"
		}
		all = append(all, problem{ServiceHealth: operate.ServiceHealth{Level: i.Level, Error: i.Why, Since: i.Since, Do: i.Do}, What: i.What, Href: href, NextTry: i.NextTry})
	}
	for _, s := range health.Services {
		all = append(all, problem{ServiceHealth: s, What: s.Service, Href: servicePath(s.Service)})
	}
	slices.SortStableFunc(all, func(a, b problem) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	return all
}

// heldShare is the share of possible sends that told the customer nothing new.
func heldShare(s *snapshot.Snapshot) (share float64, known bool) {
	saved := s.Decisions[decide.DecisionPruned] + s.Decisions[decide.DecisionHeldBack]
	all := saved + s.Decisions[decide.DecisionSent]
	if all == 0 {
		return 0, false
	}
	return saved / all, true
}
