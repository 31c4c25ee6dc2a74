package explain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/internal/terminal"
)

// Limits of the human form, in characters and lines.
const (
	width    = 100
	cellMin  = 22 // of a service's column
	cellMax  = 42
	maxLines = 40 // parts of the merged document
)

// Write writes the explanation as text: lines of at most 100 characters, up to three services
// side by side, more below one another. With full, lines are not cut, for files and other
// programs. The error is from w.
func (x *Explanation) Write(w io.Writer, full bool) error {
	p := &printer{w: bufio.NewWriter(w), full: full}
	if !x.Found {
		if len(x.Checks) > 0 {
			p.line("No source brought an entity %q; check services were asked about it. Looked at:", x.Entity)
		} else {
			p.line("There is no entity %q. Looked at:", x.Entity)
		}
		for _, l := range x.Looked {
			p.wrap("  ", "  ", l)
		}
		x.checks(p)
		x.deliveries(p)
		x.letters(p)
		return p.w.Flush()
	}
	x.head(p)
	x.events(p)
	x.sources(p)
	x.merged(p)
	x.side(p)
	x.checks(p)
	x.deliveries(p)
	x.letters(p)
	x.why(p)
	for _, n := range x.Notes {
		p.line("")
		p.wrap("Note: ", "  ", n)
	}
	return p.w.Flush()
}

type printer struct {
	w    *bufio.Writer
	full bool
}

// line prints a line. Producers wrote parts of most of them, so all pass terminal.Line.
func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(p.w, "%s\n", strings.TrimRight(p.cut(terminal.Line(fmt.Sprintf(format, args...)), width), " "))
}

// cut shortens a text to n characters, unless all is wanted.
func (p *printer) cut(s string, n int) string {
	if p.full {
		return s
	}
	return terminal.Cut(s, n)
}

// wrap breaks a text at spaces into lines.
func (p *printer) wrap(first, next, text string) {
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		for {
			room := width - utf8.RuneCountInString(line)
			if empty || utf8.RuneCountInString(word) < room {
				break
			}
			p.line("%s", line)
			line, empty = next, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.line("%s", line)
}

// table prints rows under a head, columns as wide as needed. The last one may be cut.
func (p *printer) table(head []string, rows [][]string) {
	widths, all := make([]int, len(head)), slices.Concat([][]string{head}, rows)
	for _, r := range all {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(p.cut(c, 36)))
		}
	}
	for _, r := range all {
		line := " "
		for i, c := range r {
			if i < len(r)-1 {
				c = pad(p.cut(c, widths[i]), widths[i]+1)
			}
			line += " " + c
		}
		p.line("%s", line)
	}
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

func (x *Explanation) head(p *printer) {
	p.line("Entity %s", shown(x.Entity))
	state := "complete"
	switch {
	case x.Deleted != nil:
		state = "deleted by all sources at " + clock(*x.Deleted)
	case len(x.Missing) > 0:
		state = "not complete: the required " + names(x.Missing) + " no document"
	}
	p.wrap("  ", "  ", "last changed by inbox position "+x.Version+"; "+state)
	if x.Current {
		p.line("  evaluated under this configuration")
	} else {
		p.line("  not yet evaluated under this configuration, or asked to be evaluated anew at its next event")
	}
}

// shown quotes an id that could be misread without quotes.
func shown(id string) string {
	if strings.Contains(id, " ") {
		return strconv.Quote(id)
	}
	return terminal.Visible(id)
}

// brief shows the begin of a hash.
func brief(hash string) string {
	if hash == "" {
		return "-"
	}
	return terminal.Cut(hash, 17)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func (x *Explanation) events(p *printer) {
	p.line("")
	if len(x.Events) == 0 {
		p.line("Events: none on record")
		return
	}
	p.line("Events, the oldest first")
	var rows [][]string
	for _, e := range x.Events {
		source, size, from := cmp.Or(e.Action, e.Source), "", ""
		if r := e.Record; r != nil && e.Action == "" {
			size, from = fmt.Sprint(r.Size), r.Position
			if r.Stream == "" {
				from = "posted"
			}
			if r.Operation == "delete" {
				size = "delete"
			}
			if r.Sequence != "" {
				from += " seq " + shown(r.Sequence)
			}
		} else if e.Gone != "" {
			from = "gone"
		}
		rows = append(rows, []string{e.Version, clock(e.Time), e.Outcome, p.cut(shown(source), 16), cmp.Or(p.cut(e.shownID(), 18), "-"), cmp.Or(size, "-"), cmp.Or(from, "-")})
	}
	p.table([]string{"VERSION", "TIME", "OUTCOME", "SOURCE", "EVENT", "BYTES", "AT SOURCE"}, rows)
	for i := range x.Events {
		e := &x.Events[i]
		if row := e.inRow(); row != "" {
			p.line("  %s: stale%s", e.Version, row)
		}
		if e.Gone != "" {
			p.wrap("  ", "    ", e.Version+": "+e.Gone)
		}
		if e.Record != nil && e.Record.Reason != "" {
			p.wrap("  ", "    ", e.Version+": asked for by "+e.Record.Actor+": "+e.Record.Reason)
		}
		if e.Record != nil && e.Record.Payload != nil {
			fmt.Fprintf(p.w, "  %s: %s\n", e.Version, terminal.Line(string(e.Record.Payload))) // asked for, so whole
		}
	}
}

func (x *Explanation) sources(p *printer) {
	p.line("")
	p.line("Sources, the strongest first")
	for _, s := range x.Sources {
		what := s.Mode
		if s.Mount != "" {
			what += ", at " + s.Mount
		}
		if s.Required {
			what += ", required"
		}
		if s.Unknown {
			what = "not in this configuration: its document takes no part"
		}
		if s.Position != "" {
			what += "; taken up to " + s.Position
		}
		if s.Seen != nil && s.Seen.Sequence != "" {
			what += "; sequence " + shown(s.Seen.Sequence)
		}
		p.line("  %s (%s)", s.Source, what)
		if s.Document == nil {
			p.line("    no document")
		} else {
			p.line("    %s", s.Document)
		}
	}
}

func (x *Explanation) merged(p *printer) {
	p.line("")
	if x.Merged == nil {
		p.line("Merged document: none")
		return
	}
	p.line("Merged document")
	p.line("    %s", x.Merged.Document)
	var rows [][]string
	parts := x.Merged.Parts[:min(len(x.Merged.Parts), maxLines)]
	for _, part := range parts {
		over := ""
		if len(part.Over) > 0 {
			over = "wins over " + strings.Join(part.Over, ", ")
		}
		path := cmp.Or(terminal.Visible(part.Path), "(the whole)")
		rows = append(rows, []string{path, p.cut(terminal.Line(string(part.Value)), 36), part.Source, over})
	}
	p.table([]string{"PATH", "VALUE", "SOURCE", ""}, rows)
	if n := len(x.Merged.Parts) + x.Merged.More - len(parts); n > 0 {
		p.line("  and %d more (--json has them)", n)
	}
}

// title returns the name of a service in the configuration.
func (s *Service) title() string { return cmp.Or(s.Renamed, s.Service) }

func (s *Service) lastSent() string {
	if s.Last == nil {
		return "never"
	}
	return s.Last.Version + " " + s.Last.State
}

// side shows the services side by side, as many as fit in a line.
func (x *Explanation) side(p *printer) {
	labels := make([]string, len(x.Events))
	label := len("would be sent")
	for i, e := range x.Events {
		labels[i] = e.Version + " " + p.cut(e.describe(), 20)
		label = max(label, utf8.RuneCountInString(labels[i]))
	}
	if len(x.Services) > maxSide {
		x.below(p, labels)
		return
	}
	if !p.full {
		label = min(label, 30)
	}
	per := max(1, (width-2-label)/(cellMin+2))
	for at := 0; at < len(x.Services); at += per {
		group := x.Services[at:min(at+per, len(x.Services))]
		cell := min(cellMax, (width-2-label)/len(group)-2)
		for _, s := range group {
			if p.full {
				cell = max(cell, utf8.RuneCountInString(s.title()), utf8.RuneCountInString(terminal.Line(string(s.View))), utf8.RuneCountInString(s.Fault)+7)
			}
		}
		row := func(name string, f func(s *Service) string) {
			line := "  " + pad(p.cut(name, label), label)
			for i := range group {
				line += "  " + pad(p.cut(f(&group[i]), cell), cell)
			}
			p.line("%s", line)
		}
		p.line("")
		row("Services", (*Service).title)
		for i := range labels {
			row(labels[i], func(s *Service) string { return s.Events[i] })
		}
		for _, r := range sideRows {
			row(r.name, r.of)
		}
	}
}

// sideRows are the rows of each service beside its events.
var sideRows = []struct {
	name string
	of   func(s *Service) string
}{
	{"filter", func(s *Service) string {
		switch {
		case s.Filter == "":
			return "none"
		case s.Match:
			return "lets it through"
		}
		return "keeps it out"
	}},
	{"sees now", func(s *Service) string {
		if s.Fault != "" {
			return "fails: " + s.Fault
		}
		if s.View == nil {
			return "nothing"
		}
		return terminal.Line(string(s.View))
	}},
	{"hash now", func(s *Service) string { return brief(s.Hash) }},
	{"last sent", (*Service).lastSent},
	{"  its hash", func(s *Service) string {
		if s.Last == nil || s.Last.Hash == "" {
			return "-"
		}
		return brief(s.Last.Hash)
	}},
	{"delivered", func(s *Service) string {
		switch {
		case s.Last == nil:
			return "nothing"
		case s.Last.Delivered:
			return s.Last.Version
		case s.Queued && s.Position != "":
			return "queued, come to " + s.Position
		case s.Queued:
			return "queued"
		}
		return "not this one"
	}},
	{"would be sent", func(s *Service) string {
		if s.WouldSend {
			return "yes, decided now"
		}
		return "nothing new"
	}},
	{"dead letters", func(s *Service) string {
		if len(s.Letters) == 0 {
			return "none"
		}
		return strings.Trim(fmt.Sprint(s.Letters), "[]")
	}},
	{"verdict", func(s *Service) string { return string(s.Verdict) }},
}

// maxSide is how many services are shown side by side.
const maxSide = 3

// below shows a row per service: the decision on each event, under its version, and the
// verdict.
func (x *Explanation) below(p *printer, labels []string) {
	p.line("")
	p.line("Services")
	for i, l := range labels {
		p.line("  [%d] %s", i+1, l)
	}
	head := []string{"SERVICE", "VERDICT", "LAST SENT"}
	for i := range labels {
		head = append(head, fmt.Sprintf("[%d]", i+1))
	}
	rows := make([][]string, len(x.Services))
	for i := range x.Services {
		s := &x.Services[i]
		rows[i] = append([]string{s.title(), string(s.Verdict), s.lastSent()}, s.Events...)
	}
	wide := &printer{w: p.w, full: true} // a name that is cut is no name
	wide.table(head, rows)
}

// deliveries shows the targets' answers.
func (x *Explanation) deliveries(p *printer) {
	if len(x.Deliveries) == 0 {
		return
	}
	p.line("")
	p.line("Deliveries, the oldest first (weir deliveries has more)")
	rows := make([][]string, len(x.Deliveries))
	for i, d := range x.Deliveries {
		status := "-"
		if d.Status != 0 {
			status = strconv.Itoa(d.Status)
		}
		rows[i] = []string{clock(d.At), d.Service, d.Version, d.Outcome, status, strconv.FormatInt(d.Millis, 10), cmp.Or(terminal.Visible(d.Answer), "-")}
	}
	p.table([]string{"TIME", "SERVICE", "VERSION", "OUTCOME", "STATUS", "MS", "ANSWER"}, rows)
}

func (x *Explanation) letters(p *printer) {
	if len(x.Letters) == 0 {
		return
	}
	p.line("")
	p.line("Open dead letters about it, the newest first")
	for _, l := range x.Letters {
		again := ""
		if l.Count > 1 {
			again = fmt.Sprintf(" (%d times, last %s)", l.Count, clock(l.Last))
		}
		p.wrap("  ", "    ", fmt.Sprintf("%d  %s  %s %s  %s: %s%s", l.ID, clock(l.Created), l.Stage, cmp.Or(l.Service, l.Source), l.Code, l.Reason, again))
	}
}

func (x *Explanation) why(p *printer) {
	if len(x.Services) == 0 {
		return
	}
	p.line("")
	p.line("Why")
	for i := range x.Services {
		s := &x.Services[i]
		p.line("  %s", s.title())
		p.wrap("    ", "    ", s.Why)
	}
}
