package page

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
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
	Name, Kind, Format string
	Taken, Repeated    float64
	Noise, Dead        float64
	Rate               snapshot.Rate
	Lag                float64
	LagKnown           bool
	Oldest             time.Duration
	Here               bool   // this process takes it in
	Decides            bool   // this process decides, and so knows what is noise
	Error              string // why it is not read
}

// Path is the address of its page.
func (r sourceRow) Path() string { return "/sources/" + url.PathEscape(r.Name) }

// Class is how its state is painted.
func (r sourceRow) Class() string {
	switch {
	case !r.Here:
		return "weak"
	case r.Error != "":
		return levelClass(operate.LevelDown)
	case r.Lag > 0 && r.Rate.Known && r.Rate.PerSecond == 0:
		return levelClass(operate.LevelDegraded)
	}
	return levelClass(operate.LevelOK)
}

// State is its state in words.
func (r sourceRow) State() string {
	switch r.Class() {
	case "bad":
		return "cannot be read"
	case "warn":
		return "nothing is taken in"
	case "weak":
		return "not read here"
	}
	return "running"
}

func (p *Page) sourceNames() (all []string) {
	c := p.opt.Config()
	for i := range c.Sources {
		all = append(all, c.Sources[i].Name)
	}
	return all
}

func (p sourceSection) rows() ([]sourceRow, error) {
	now, before, err := p.opt.History.Look()
	if err != nil {
		return nil, err
	}
	per, failing := now.Against(before), sourceErrors(p.opt.Health())
	var rows []sourceRow
	for i := range p.opt.Config().Sources {
		c := &p.opt.Config().Sources[i]
		s := now.Source(c.Name)
		row := sourceRow{
			Name: c.Name, Kind: c.Input.Kind(), Format: c.Format, Taken: s.Taken, Repeated: s.Repeated, Noise: s.Noise, Dead: s.Dead,
			Rate: per(func(n *snapshot.Snapshot) float64 { return n.Source(c.Name).Taken }), Lag: s.Lag, LagKnown: s.LagKnown,
			Here: p.runs("ingest"), Decides: p.runs("decide"), Oldest: time.Duration(s.Oldest * float64(time.Second)).Round(time.Second),
		}
		if !row.Here {
			row.Rate = snapshot.Rate{}
		}
		row.Error = failing[c.Name]
		rows = append(rows, row)
	}
	rank := map[string]int{"bad": 0, "warn": 1, "good": 2, "weak": 2}
	slices.SortStableFunc(rows, func(a, b sourceRow) int { return cmp.Compare(rank[a.Class()], rank[b.Class()]) })
	return rows, nil
}

func (p sourceSection) list(w http.ResponseWriter, r *http.Request, who *session) {
	rows, err := p.rows()
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	p.show(w, http.StatusOK, "sources", view{Title: "Sources", Section: "/sources", Session: who, Live: true, Body: rows})
}

func (p sourceSection) live(w http.ResponseWriter, r *http.Request, _ *session) {
	rows, err := p.rows()
	p.fragment(w, "sources-live", rows, err)
}

type sourceBody struct {
	Row     sourceRow
	Plots   plots
	Facts   []field // of its configuration
	Strip   []string
	Noise   noise.Report
	From    string // days that the noise is of; empty: nothing was seen
	To      string
	Trouble string // why it cannot be told
}

// maxFields bounds the shown fields that make noise.
const maxFields = 15

// view shows one, with what makes noise in it.
func (p sourceSection) view(w http.ResponseWriter, r *http.Request, who *session) {
	name := r.PathValue("name")
	cfg := p.opt.Config()
	c := cfg.Sources.Find(name)
	if c == nil {
		p.renderMessage(w, r, http.StatusNotFound, "There is no such source.")
		return
	}
	rows, err := p.rows()
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	i := slices.IndexFunc(rows, func(row sourceRow) bool { return row.Name == name })
	b := sourceBody{Row: rows[i], Plots: p.plotsOf(r, rows[i].Path(), "source", name), Strip: c.Strip, Facts: sourceFacts(c)}
	if result, err := noise.Read(r.Context(), p.opt.Store, cfg, func(source string) bool { return source == name }); err != nil {
		b.Trouble = err.Error()
	} else if len(result.Sources) > 0 {
		b.Noise, b.From, b.To = result.Sources[0], result.From, result.To
		b.Noise.Fields = b.Noise.Fields[:min(maxFields, len(b.Noise.Fields))]
	}
	p.show(w, http.StatusOK, "source", view{Title: name, Section: "/sources", Session: who, Body: b})
}

func sourceFacts(c *config.Source) (facts []field) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, field{name, value})
		}
	}
	add("kind", c.Input.Kind())
	add("format", c.Format)
	add("entity", c.Entity.String())
	add("event id", c.EventID.String())
	add("document", c.Payload.String())
	add("operation", c.Operation.String())
	add("sequence", c.Sequence.String())
	add("mode", c.Mode)
	add("mounted at", c.Mount)
	add("stands in", baseName(c.Pos.File)+":"+itoa(c.Pos.Line))
	return facts
}
