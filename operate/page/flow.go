package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

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

// box is a node with its place in a picture, edge a line between two.
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
		Edges         []edge
		Boxes         []box
	}
)

// nodes are the three columns of the flow.
type nodes struct{ Sources, Stages, Customers []node }

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
	return nodes{p.sourceNodes(now, before, health), p.stageNodes(now, per, health), p.customerNodes(now, before, health)}
}

// flowNode returns a node with a throughput and a backlog.
func flowNode(name string, r snapshot.Rate, queued float64) node {
	x := node{Name: name, Says: rateText(r) + "/s", rate: r.PerSecond, Level: operate.LevelOK}
	if queued > 0 {
		x.Says += " · up to " + comma(queued) + " queued"
	}
	return x
}

// markStalled makes a node with a backlog and without progress amber.
func (n *node) markStalled(r snapshot.Rate, queued float64) {
	if queued > 0 && r.Known && r.PerSecond == 0 {
		n.Level = operate.LevelDegraded
	}
}

// markElsewhere marks the node of a stage of other processes.
func (n *node) markElsewhere(says string) {
	n.Away, n.Says, n.rate, n.Level = true, says, 0, operate.LevelOK
}

func (p overviewSection) sourceNodes(now, before *snapshot.Snapshot, health operate.Health) (all []node) {
	for _, row := range sourceSection(p).rows(now, before, health) {
		x := flowNode(row.Name, row.Rate, row.Lag)
		x.Href, x.Level = row.Path(), row.Level()
		switch {
		case !row.Here:
			x.markElsewhere(row.State())
		case row.Error != "":
			x.Says = row.State()
		}
		all = append(all, x)
	}
	return summed(all, flowSources, "sources", "/sources")
}

func (p overviewSection) stageNodes(now *snapshot.Snapshot, per rates, health operate.Health) []node {
	stage := func(name, role string, r snapshot.Rate, queued float64) node {
		x := flowNode(name, r, queued)
		x.markStalled(r, queued)
		if health.Level == operate.LevelDown && name != "Deliver" {
			x.Level = operate.LevelDown
		}
		if !p.runs(role) {
			x.Href = "/system"
			x.markElsewhere("not in this process")
		}
		return x
	}
	ingest := stage("Ingest", "ingest", per(func(s *snapshot.Snapshot) float64 { return snapshot.Total(s.Ingested) }), 0)
	decided := stage("Decide", "work", per(func(s *snapshot.Snapshot) float64 { return snapshot.Total(s.Events) }), now.InboxLag)
	delivered := stage("Deliver", "work", per(func(s *snapshot.Snapshot) float64 { return s.Delivered["delivered"] }), now.Pending)
	return []node{ingest, decided, delivered}
}

func (p overviewSection) customerNodes(now, before *snapshot.Snapshot, health operate.Health) (nodes []node) {
	bad := map[string]operate.Level{}
	for _, s := range health.Services {
		customer := p.customerOf(s.Service)
		if s.Level.Rank() > bad[customer].Rank() {
			bad[customer] = s.Level
		}
	}
	services, one := map[string]int{}, map[string]string{}
	for _, s := range p.opt.Config().Services() {
		customer, _, _ := strings.Cut(s.Current, "/")
		services[customer]++
		one[customer] = s.Name
	}
	total := func(s *snapshot.Snapshot) (delivered, queued map[string]float64) {
		delivered, queued = map[string]float64{}, map[string]float64{}
		if s != nil {
			for name, x := range s.Services { // of one service, or of several services of a customer
				customer := p.customerOf(name)
				delivered[customer] += x.Delivered["delivered"]
				queued[customer] += x.Pending
			}
		}
		return delivered, queued
	}
	delivered, queued := total(now)
	was, _ := total(before)
	for customer, n := range services {
		r := now.Against(before)(func(s *snapshot.Snapshot) float64 {
			if s == now {
				return delivered[customer]
			}
			return was[customer]
		})
		x := flowNode(customer, r, queued[customer])
		x.Href = "/services?" + query("customer", customer)
		if n == 1 {
			x.Href = servicePath(one[customer])
		}
		if level, is := bad[customer]; is {
			x.Level = level
		}
		if !p.runs("work") {
			x.markElsewhere("not delivered here")
		}
		nodes = append(nodes, x)
	}
	return summed(nodes, flowCustomers, "customers", "/services")
}

// summed sorts nodes, the worst first, then the busiest, and sums up those beyond a bound.
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
		all[i].Full, all[i].Name = all[i].Name, terminal.Cut(all[i].Name, flowName)
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

// draw draws the flow from left to right.
func (n nodes) draw() picture {
	const (
		rowH, gap = 46, 10
		sideW     = 236
		stageW    = 184
		stageH    = 72
		width     = 1240
	)
	rows := max(len(n.Sources), len(n.Customers), 2)
	p := picture{Width: width, Height: rows*(rowH+gap) - gap + 4}
	middle := p.Height / 2
	column := func(all []node, x int) (boxes []box) {
		top := middle - (len(all)*(rowH+gap)-gap)/2
		for i, each := range all {
			boxes = append(boxes, each.at(x, top+i*(rowH+gap), sideW, rowH, false))
		}
		return boxes
	}
	left, right := column(n.Sources, 1), column(n.Customers, width-sideW-1)
	var stages []box
	for i, s := range n.Stages {
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
