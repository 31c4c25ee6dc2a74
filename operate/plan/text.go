package plan

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/internal/terminal"
)

const (
	maxValue = 60 // characters of a value in the human form
	maxShown = 12 // differences of a sample in the human form
)

// Write writes the effect as text. The error is from w.
func (e *Effect) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	n := humanize.Comma
	fmt.Fprintf(b, "%s\n\n", english.Plural(int(e.Entities), "stored entity", "stored entities"))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "service\tstate\tsend\tretract\tunchanged\tnothing\tfail\t"
	if e.Compared {
		head = "service\tstate\tsend\tretract\tanyway\tnewly held\tunchanged\tnothing\tfail\t"
	}
	fmt.Fprintln(t, head)
	var send, retract, anyway int64
	for _, s := range e.Services {
		send, retract = send+s.Send, retract+s.Retract
		compared := ""
		if e.Compared {
			compared = "-\t-\t"
			if s.Anyway != nil {
				anyway += *s.Anyway
				compared = n(*s.Anyway) + "\t" + n(*s.NewlyHeld) + "\t"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s%s\t%s\t%s\t\n", cmp.Or(s.Renamed, s.Service), s.State, n(s.Send), n(s.Retract), compared, n(s.Unchanged), n(s.Nothing), n(s.Fail))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprint(b, "\nsend, retract: would be sent on an entity's next event, or by replay --outdated\n")
	if e.Compared {
		fmt.Fprint(b, "anyway:        of these, what the compared configuration would send too\n"+
			"newly held:    would be sent under the compared configuration, and equals what the customer has under this one\n")
	}
	fmt.Fprint(b, "unchanged:     equal to what the customer has\n"+
		"nothing:       not shown to this service, and never was\n")
	for _, s := range e.Services {
		if s.State == Removed {
			fmt.Fprintf(b, "\n%s is removed: its customer keeps %s entities, nothing is retracted.\n", s.Service, n(s.Keeps))
		}
		if s.Renamed != "" {
			fmt.Fprintf(b, "\n%s is renamed from %s and keeps its state: the rename sends nothing.\n", s.Renamed, s.Service)
		}
		for _, sample := range s.Samples {
			sample.write(b, cmp.Or(s.Renamed, s.Service))
		}
	}
	if e.Failed > 0 {
		ids := make([]string, len(e.FailedIDs))
		for i, id := range e.FailedIDs {
			ids[i] = terminal.Visible(id)
		}
		fmt.Fprintf(b, "\n%s cannot be decided under this configuration, for instance %s\n", english.Plural(int(e.Failed), "entity", "entities"), strings.Join(ids, ", "))
	}
	for _, note := range e.Notes {
		fmt.Fprintf(b, "\nNote: %s\n", note)
	}
	if e.Changes() == 0 {
		fmt.Fprint(b, "\nThis configuration would send nothing.\n")
	} else {
		also := ""
		if anyway > 0 {
			also = fmt.Sprintf(", of which %s would be sent anyway", n(anyway))
		}
		fmt.Fprintf(b, "\nThis configuration would send %s and %s%s.\n", english.Plural(int(send), "update", "updates"), english.Plural(int(retract), "retraction", "retractions"), also)
	}
	return b.Flush()
}

func (s Sample) write(w io.Writer, service string) {
	fmt.Fprintf(w, "\n%s  %s  %s\n", service, terminal.Visible(s.Entity), s.Op)
	switch {
	case s.Before == nil && s.After == nil:
		fmt.Fprintln(w, "  goes away")
	case s.Before == nil:
		fmt.Fprintf(w, "  + %s\n", brief(s.After, 2*maxValue))
	case s.After == nil:
		fmt.Fprintf(w, "  - %s\n", brief(s.Before, 2*maxValue))
	default:
		for _, d := range s.Diff[:min(maxShown, len(s.Diff))] {
			path := cmp.Or(terminal.Visible(d.Path), "(the whole)")
			switch {
			case d.Before == nil:
				fmt.Fprintf(w, "  + %s: %s\n", path, brief(d.After, maxValue))
			case d.After == nil:
				fmt.Fprintf(w, "  - %s: %s\n", path, brief(d.Before, maxValue))
			default:
				fmt.Fprintf(w, "  ~ %s: %s → %s\n", path, brief(d.Before, maxValue), brief(d.After, maxValue))
			}
		}
		if more := len(s.Diff) - maxShown; more > 0 || s.More > 0 {
			fmt.Fprintf(w, "  … and %d more\n", max(0, more)+s.More)
		}
		if len(s.Diff) == 0 {
			fmt.Fprintln(w, "  the same document, compared in another way (numbers)")
		}
	}
	if s.Before != nil && s.Older {
		fmt.Fprintln(w, "  (what the customer has is older than what is compared with)")
	}
}

// brief shows a JSON text on one line, cut, without control characters.
func brief(text json.RawMessage, most int) string {
	return terminal.Cut(terminal.Line(string(text)), most)
}
