package page

import (
	"cmp"
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

// young is the minimum age of a step with a rate.
const young = 10 * time.Second

// line is one line of a plot, and one column of its table.
type line struct {
	Name, Why string
	pick      func(history.Point, float64) float64 // of a point and its length in seconds
}

// plot is a figure: lines of one unit.
type plot struct {
	Title, Unit string
	Lines       []line
}

var servicePlots = []plot{ //nolint:gochecknoglobals // never written
	{"Sent and held back", "changes/s", []line{
		{"sent", "changed for the customer", func(p history.Point, s float64) float64 { return float64(p.In) / s }},
		{"held back", "equal to the last one", func(p history.Point, s float64) float64 { return float64(p.Held) / s }},
	}},
	{"Delivered", "changes/s", []line{{"delivered", "took effect at the target", func(p history.Point, s float64) float64 { return float64(p.Out) / s }}}},
	{"Failed", "attempts/s", []line{{"failed", "attempts at the target", func(p history.Point, s float64) float64 { return float64(p.Failed) / s }}}},
	{"Queued", "changes", []line{{"queued", "the maximum", func(p history.Point, _ float64) float64 { return float64(p.Waiting) }}}},
	{"Delay", "seconds", []line{{"delay", "from the event's ingestion to its delivery, mean", func(p history.Point, _ float64) float64 { return p.Age().Seconds() }}}},
}

var sourcePlots = []plot{ //nolint:gochecknoglobals // never written
	{"Ingested, repeated or noise", "events/s", []line{
		{"ingested", "durable in the inbox", func(p history.Point, s float64) float64 { return float64(p.In) / s }},
		{"repeated or noise", "known before, or without an effective change", func(p history.Point, s float64) float64 { return float64(p.Held) / s }},
	}},
	{"Dead letters", "events/s", []line{{"dead letters", "cannot be ingested", func(p history.Point, s float64) float64 { return float64(p.Failed) / s }}}},
	{"Queued", "records", []line{{"queued", "the maximum at the source", func(p history.Point, _ float64) float64 { return float64(p.Waiting) }}}},
}

// plots are a table of history. The script draws it.
type plots struct {
	Of      string // subject of the history
	Address string // of the fragment, without the range
	Range   history.Range
	Ranges  []history.Range
	Page    string // address of the page with the ranges
	Plots   []plot
	Rows    []plotRow
	Marks   []plotMark // the latest first
	Empty   bool
	Every   int // seconds between new steps
}

type plotRow struct {
	At    time.Time
	Cells []plotCell
}

// plotCell is a value as text and for the script. Exact is empty for an unknown value.
type plotCell struct{ Text, Exact string }

// plotMark is an event, or an outage with its end.
type plotMark struct {
	history.Mark
	Until time.Time // zero for an event, or an outage that lasts
}

// RangePath is the address of the same page with another range.
func (b plots) RangePath(name string) string {
	separator := "?"
	if strings.Contains(b.Page, "?") {
		separator = "&"
	}
	return b.Page + separator + "range=" + name
}

// rangeOf returns the range that a request names, or an hour.
func rangeOf(r *http.Request) history.Range {
	all := history.Ranges()
	if i := slices.IndexFunc(all, func(x history.Range) bool { return x.Name == r.URL.Query().Get("range") }); i >= 0 {
		return all[i]
	}
	return all[1]
}

// plotsOf returns the history of a series. page is the address that shows it; kind and name
// identify the series to the fragment.
func (p *Page) plotsOf(r *http.Request, page, kind, name string) plots {
	of, now := rangeOf(r), p.opt.Now()
	b := plots{
		Of: name, Range: of, Ranges: history.Ranges(), Page: page, Plots: servicePlots, Every: int(of.Step.Seconds()),
		Address: "/live/history?" + url.Values{"kind": {kind}, "name": {name}, "page": {page}, "range": {of.Name}}.Encode(),
	}
	series := history.ServiceSeries(name)
	switch kind {
	case "source":
		series, b.Plots = history.SourceSeries(name), sourcePlots
	case "sources":
		series, b.Plots, b.Of = history.AllSources, sourcePlots, "all sources"
	case "services":
		series, b.Of = history.AllServices, "all services"
	}
	b.Empty = true
	for _, s := range p.opt.History.Series(series, of) {
		if now.Sub(s.At) < young {
			continue
		}
		row := plotRow{At: s.At}
		b.Empty = b.Empty && s.Point == (history.Point{})
		// The last step is not over: its rates are over the time that has passed.
		seconds := max(time.Second, min(of.Step, now.Sub(s.At))).Seconds()
		for _, x := range b.Plots {
			for _, l := range x.Lines {
				cell := plotCell{Text: "–"}
				if v := l.pick(s.Point, seconds); s.Known && (x.Unit != "seconds" || s.Aged > 0) {
					cell = plotCell{comma(v), fmt.Sprintf("%.4g", v)}
					if v > 0 && v < 100 {
						cell.Text = fmt.Sprintf("%.3g", v)
					}
				}
				row.Cells = append(row.Cells, cell)
			}
		}
		b.Rows = append(b.Rows, row)
	}
	slices.Reverse(b.Rows) // the latest first
	b.Marks = marksOf(p.opt.History.Marks(now.Add(-of.Span)), kind, name)
	return b
}

// marksOf selects the marks that concern a series, and joins outages with their ends.
func marksOf(marks []history.Mark, kind, name string) (all []plotMark) {
	open := map[string]int{}
	for _, m := range marks {
		source, isSource := strings.CutPrefix(m.Of, "source ")
		isService := strings.Contains(m.Of, "@")
		if isService && kind != "services" && m.Of != name || isSource && kind != "sources" && (kind != "source" || source != name) {
			continue
		}
		i, lasts := open[m.Of]
		switch m.Kind {
		case history.Failed:
			if !lasts {
				open[m.Of] = len(all)
				all = append(all, plotMark{Mark: m})
			}
			continue
		case history.Recovered, history.Stopped:
			if lasts {
				all[i].Until = m.At
				delete(open, m.Of)
			}
		}
		if m.Kind != history.Recovered {
			all = append(all, plotMark{Mark: m})
		}
	}
	slices.SortStableFunc(all, func(a, b plotMark) int { return cmp.Compare(b.At.Unix(), a.At.Unix()) })
	return all
}

func (p historySection) load(r *http.Request) (any, error) {
	q := r.URL.Query()
	return p.plotsOf(r, target(q.Get("page")), q.Get("kind"), q.Get("name")), nil
}

type historyBody struct{ Services, Sources plots }

// view shows the history of all services and sources.
func (p historySection) view(r *http.Request) (view, error) {
	b := historyBody{Services: p.plotsOf(r, "/history", "services", ""), Sources: p.plotsOf(r, "/history", "sources", "")}
	return view{Title: "History", Section: "/history", Body: b}, nil
}
