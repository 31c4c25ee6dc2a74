package page

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate/history"
)

// historySection serves the plots.
type historySection struct{ *Page }

// young is the age of a step below which too little of it was seen to tell a rate.
const young = 10 * time.Second

// line is one column of a table of history, and one line of a plot.
type line struct {
	Name string
	Why  string
	Plot int // which plot it is in; lines of one plot have one unit
	pick func(history.Point, time.Duration) float64
	Unit string
}

// plotTitle is the heading of one plot.
type plotTitle struct {
	Title, Unit string
}

// plots are a table of history; the script draws it.
type plots struct {
	Of      string // what the history is of
	Address string // of the fragment, without the range
	Range   history.Range
	Ranges  []history.Range
	Page    string // address that the ranges are chosen at
	Plots   []plotTitle
	Lines   []line
	Rows    []plotRow
	Empty   bool
	Every   int // seconds until there is something new
}

type plotRow struct {
	At     time.Time
	Values []string // for people
	Exact  []string // for the script; empty where there is none
}

// RangePath is the address of the same page with another range.
func (b plots) RangePath(name string) string {
	separator := "?"
	if strings.Contains(b.Page, "?") {
		separator = "&"
	}
	return b.Page + separator + "range=" + name
}

// TitleOf is the heading of a plot.
func (b plots) TitleOf(plot int) string { return b.Plots[plot].Title }

func perSecond(n int64, step time.Duration) float64 { return float64(n) / step.Seconds() }

func serviceLines() []line {
	return []line{
		{Name: "sent", Why: "changed for the customer", Plot: 0, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.In, d) }},
		{Name: "held back", Why: "equal to what the customer has", Plot: 0, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.Held, d) }},
		{Name: "delivered", Why: "took effect at the target", Plot: 1, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.Out, d) }},
		{Name: "failed", Why: "attempts", Plot: 1, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.Failed, d) }},
		{Name: "waiting", Why: "the most that waited", Plot: 2, Unit: "changes", pick: func(p history.Point, _ time.Duration) float64 { return float64(p.Waiting) }},
		{Name: "age", Why: "from the event's entry to its delivery, mean", Plot: 3, Unit: "seconds", pick: func(p history.Point, _ time.Duration) float64 { return p.Age().Seconds() }},
	}
}

func sourceLines() []line {
	return []line{
		{Name: "taken in", Why: "durable in the inbox", Plot: 0, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.In, d) }},
		{Name: "repeated or noise", Why: "known before, or nothing that matters changed", Plot: 0, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.Held, d) }},
		{Name: "dead letters", Why: "could not be taken in", Plot: 1, Unit: "per second", pick: func(p history.Point, d time.Duration) float64 { return perSecond(p.Failed, d) }},
		{Name: "waiting", Why: "the most that waited at the source", Plot: 2, Unit: "records", pick: func(p history.Point, _ time.Duration) float64 { return float64(p.Waiting) }},
	}
}

// rangeOf is the range that a request asks for; an hour when it does not say, or
// says something else.
func rangeOf(r *http.Request) history.Range {
	all := history.Ranges()
	for _, x := range all {
		if x.Name == r.URL.Query().Get("range") {
			return x
		}
	}
	return all[1]
}

// plotsOf makes the history of a series. page is the address that shows it; kind and name
// identify the series to the fragment.
func (p *Page) plotsOf(r *http.Request, page, kind, name string) plots {
	of := rangeOf(r)
	b := plots{
		Of: name, Range: of, Ranges: history.Ranges(), Page: page, Every: int(of.Step.Seconds()),
		Address: "/live/history?" + url.Values{"kind": {kind}, "name": {name}, "page": {page}, "range": {of.Name}}.Encode(),
	}
	series := ""
	switch kind {
	case "source":
		series, b.Lines = history.SourceSeries(name), sourceLines()
	case "sources":
		series, b.Lines, b.Of = history.AllSources, sourceLines(), "all sources"
	case "services":
		series, b.Lines, b.Of = history.AllServices, serviceLines(), "all services"
	default:
		series, b.Lines = history.ServiceSeries(name), serviceLines()
	}
	titles := []string{"Sent and held back", "Delivered and failed", "Waiting", "Age of deliveries"}
	if kind == "source" || kind == "sources" {
		titles = []string{"Taken in, repeated or noise", "Dead letters", "Waiting"}
	}
	for _, l := range b.Lines {
		if l.Plot == len(b.Plots) {
			b.Plots = append(b.Plots, plotTitle{Title: titles[l.Plot], Unit: l.Unit})
		}
	}
	b.Empty = true
	for _, s := range p.opt.History.Series(series, of) {
		if p.opt.Now().Sub(s.At) < young {
			continue
		}
		row := plotRow{At: s.At}
		b.Empty = b.Empty && s.Point == (history.Point{})
		// The last step is not over: rates are of what there is of it.
		took := max(time.Second, min(of.Step, p.opt.Now().Sub(s.At)))
		for _, l := range b.Lines {
			v := l.pick(s.Point, took)
			exact, said := fmt.Sprintf("%.4g", v), comma(v)
			if v > 0 && v < 100 {
				said = fmt.Sprintf("%.3g", v)
			}
			if l.Unit == "seconds" && s.Aged == 0 {
				exact, said = "", "–"
			}
			row.Exact, row.Values = append(row.Exact, exact), append(row.Values, said)
		}
		b.Rows = append(b.Rows, row)
	}
	slices.Reverse(b.Rows) // people look for the latest
	return b
}

func (p historySection) live(w http.ResponseWriter, r *http.Request, _ *session) {
	q := r.URL.Query()
	p.fragment(w, "plots", p.plotsOf(r, target(q.Get("page")), q.Get("kind"), q.Get("name")), nil)
}

type historyBody struct{ Services, Sources plots }

// view shows that of the whole.
func (p historySection) view(w http.ResponseWriter, r *http.Request, who *session) {
	b := historyBody{Services: p.plotsOf(r, "/history", "services", ""), Sources: p.plotsOf(r, "/history", "sources", "")}
	p.show(w, http.StatusOK, "history", view{Title: "History", Section: "/history", Session: who, Body: b})
}
