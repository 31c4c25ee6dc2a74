package page

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/noise"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

// sourceSection serves the sources.
type sourceSection struct{ *Page }

// sourceRow is one source.
type sourceRow struct {
	*snapshot.Source
	Name, Kind string
	Rate       snapshot.Rate // of ingested events
	Here       bool          // this process ingests it
	Decides    bool          // this process decides, and so counts noise
	Error      string        // of reading it
}

// Path is the address of its page.
func (r sourceRow) Path() string { return "/sources/" + url.PathEscape(r.Name) }

// Age is the age of its oldest queued record, 0 if unknown.
func (r sourceRow) Age() time.Duration {
	return time.Duration(r.Oldest * float64(time.Second)).Round(time.Second)
}

// Level rates its state.
func (r sourceRow) Level() operate.Level {
	switch {
	case !r.Here:
		return operate.LevelUnknown
	case r.Error != "":
		return operate.LevelDown
	case r.Lag > 0 && r.Rate.Known && r.Rate.PerSecond == 0:
		return operate.LevelDegraded
	}
	return operate.LevelOK
}

// State is its state in words.
func (r sourceRow) State() string {
	return map[operate.Level]string{
		operate.LevelDown: "cannot be read", operate.LevelDegraded: "stalled", operate.LevelUnknown: "not read here", operate.LevelOK: "running",
	}[r.Level()]
}

func (p *Page) sourceNames() (all []string) {
	c := p.opt.Config()
	for i := range c.Sources {
		all = append(all, c.Sources[i].Name)
	}
	return all
}

// rows returns the sources, the worst first.
func (p sourceSection) rows(now, before *snapshot.Snapshot, health operate.Health) (rows []sourceRow) {
	per, failing := now.Against(before), map[string]string{}
	for _, i := range health.Problems {
		if name, is := strings.CutPrefix(i.What, "source "); is {
			failing[name] = i.Why
		}
	}
	for i := range p.opt.Config().Sources {
		c := &p.opt.Config().Sources[i]
		row := sourceRow{Source: now.Source(c.Name), Name: c.Name, Kind: c.Input.Kind(), Here: p.runs("ingest"), Decides: p.runs("work"), Error: failing[c.Name]}
		if row.Here {
			row.Rate = per(func(n *snapshot.Snapshot) float64 { return n.Source(c.Name).Taken })
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b sourceRow) int { return b.Level().Rank() - a.Level().Rank() })
	return rows
}

// list shows all.
func (p sourceSection) list(r *http.Request) (view, error) {
	b, err := p.load(r)
	return view{Title: "Sources", Section: "/sources", Live: true, Body: b}, err
}

func (p sourceSection) load(*http.Request) (any, error) {
	now, before, err := p.opt.History.Look()
	if err != nil {
		return nil, err
	}
	return p.rows(now, before, p.opt.Health()), nil
}

type sourceBody struct {
	Row      sourceRow
	Plots    plots
	Facts    []field // of its configuration
	Strip    []string
	Noise    noise.Report
	From, To string // days of the noise; empty without any
	Trouble  string // of reading the noise
}

// maxFields bounds the listed fields of noise.
const maxFields = 15

// view shows one, with its noise.
func (p sourceSection) view(r *http.Request) (view, error) {
	name := r.PathValue("name")
	cfg := p.opt.Config()
	c := cfg.Sources.Find(name)
	if c == nil {
		return view{}, refusal(http.StatusNotFound, "There is no such source.")
	}
	now, before, err := p.opt.History.Look()
	if err != nil {
		return view{}, err
	}
	rows := p.rows(now, before, p.opt.Health())
	row := rows[slices.IndexFunc(rows, func(row sourceRow) bool { return row.Name == name })]
	b := sourceBody{Row: row, Plots: p.plotsOf(r, row.Path(), "source", name), Strip: c.Strip, Facts: sourceFacts(c)}
	if result, err := noise.Read(r.Context(), p.opt.Store, cfg, func(source string) bool { return source == name }); err != nil {
		b.Trouble = err.Error()
	} else if len(result.Sources) > 0 {
		b.Noise, b.From, b.To = result.Sources[0], result.From, result.To
		b.Noise.Fields = b.Noise.Fields[:min(maxFields, len(b.Noise.Fields))]
	}
	return view{Title: name, Section: "/sources", Body: b}, nil
}

func sourceFacts(c *config.Source) (facts []field) {
	for _, f := range []field{
		{"kind", c.Input.Kind()}, {"format", c.Format}, {"entity", c.Entity.String()}, {"event id", c.EventID.String()}, {"document", c.Payload.String()},
		{"operation", c.Operation.String()}, {"sequence", c.Sequence.String()}, {"mode", c.Mode}, {"mounted at", c.Mount}, {"declared in", place(c.Pos)},
	} {
		if f.From != "" {
			facts = append(facts, f)
		}
	}
	return facts
}
