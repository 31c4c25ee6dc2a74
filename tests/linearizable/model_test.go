package linearizable

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// kind is what an operation does.
type kind string

const (
	read     kind = "rows"
	event    kind = "event"
	refuse   kind = "refuse"
	reset    kind = "reset"
	redecide kind = "redecide"

	// On the watermark of a partition, whose name replaces the entity's.
	takeOver kind = "take over"
	advance  kind = "advance" // a decision, as far as the watermark goes

	// On the progress of a partition, whose name replaces the entity's.
	takePlace kind = "take progress"
	swapPlace kind = "swap progress"
)

// input is one operation on one entity.
type input struct {
	Kind     kind
	Entity   string
	Content  change.Content // of event: the projection of its document
	Version  change.Version // of an inbox record: its position
	Target   change.Version // of refuse: the version that is given up
	Force    bool           // of redecide
	Doc      int            // of event: which document, 1 and up
	Timeline int            // of a table's event: 0 or 1
	Place    int64          // likewise: commit and index of its change; 0: the event has no place
	Token    store.Token    // of takeOver and advance; of takePlace and swapPlace: the new one
	Old      store.Token    // of swapPlace
	From, To int64          // of advance; To also of swapPlace: the place
}

// watermark names the watermark of a partition.
func watermark(p store.Partition) string { return fmt.Sprint("partition ", p.Number) }

// progress names the progress of a partition.
func progress(p int32) string { return fmt.Sprint("progress ", p) }

// output is what came back.
type output struct {
	Open    bool           // nobody knows whether it passed
	Passed  bool           // of advance, swapPlace and inbox records
	Content change.Content // of an inbox record that passed: what was sent
	Row     row            // of read
	Next    int64          // of takeOver: the watermark; of takePlace: the place
}

// row is a dam row that can be compared; the text of an unknown content is empty.
type row struct {
	Found   bool
	Content string
	Refused bool
	Version change.Version
}

func rowOf(r store.Row) row {
	return row{r.Found, string(r.Content), r.Refused, r.Version}
}

// state is one entity with one service, or one watermark, or one row of progress,
// as a sequential machine.
type state struct {
	row
	decided change.Version // of the last inbox record
	doc     int            // 0: none yet
	content string         // projection of doc
	current bool           // evaluated since the document or the dam was last set
	places  [2]int64       // of the last change of each timeline

	token store.Token
	next  int64
}

// step applies an operation, and reports whether what came back is possible.
func (s state) step(in input, out output) (bool, state) {
	content := string(in.Content)
	switch in.Kind {
	case read:
		return out.Row == s.row, s
	case swapPlace:
		owner := s.token == in.Old
		if owner {
			s.token, s.next = in.Token, in.To
		}
		return out.Open || out.Passed == owner, s
	case takeOver, takePlace:
		s.token = in.Token
		return out.Open || out.Next == s.next, s
	case advance:
		owner := s.token == in.Token && s.next == in.From
		if owner {
			s.next = in.To
		}
		return out.Open || out.Passed == owner, s
	}
	// Records of the inbox, each once and in their order.
	if in.Version <= s.decided {
		return false, s
	}
	s.decided = in.Version
	passed := false
	switch in.Kind {
	case event:
		if in.Place != 0 && in.Place <= s.places[in.Timeline] {
			break // sent again
		}
		s.places[in.Timeline] = in.Place
		if in.Doc != s.doc || !s.current {
			s.doc, s.content, s.current = in.Doc, content, true
			passed = s.offer(in.Version, false)
		}
	case redecide:
		passed = s.offer(in.Version, in.Force)
	case refuse:
		// The content stays, and no other service is evaluated for it.
		if s.Found && s.Version == in.Target && s.Content != "" {
			s.Refused = true
		}
	case reset:
		s.Content, s.Refused = "", false // of a missing row it is already
		s.current = false
	}
	return out.Passed == passed && (!passed || string(out.Content) == s.content), s
}

// offer puts the projected document before the dam.
func (s *state) offer(v change.Version, force bool) (passed bool) {
	retraction := change.Content(s.content).IsRetracted()
	if s.Found && s.Content == s.content && !force || !s.Found && retraction {
		return false
	}
	s.Found, s.Content, s.Refused, s.Version = true, s.content, false, max(s.Version, v)
	return true
}

// model is the dam for porcupine, one history per entity.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byEntity := make(map[string][]porcupine.Operation)
		for _, o := range history {
			e := o.Input.(input).Entity
			byEntity[e] = append(byEntity[e], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byEntity {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		return s.(state).step(in.(input), out.(output))
	},
	DescribeOperation: func(in, out any) string {
		i, o := in.(input), out.(output)
		text := fmt.Sprintf("%s %v %v", i.Kind, i.Version, i.Content)
		switch {
		case i.Kind == swapPlace:
			return fmt.Sprintf("%s %x %x %d → %+v", i.Kind, i.Old[:2], i.Token[:2], i.To, o)
		case i.Kind == takeOver || i.Kind == advance || i.Kind == takePlace:
			return fmt.Sprintf("%s %x %d %d → %+v", i.Kind, i.Token[:2], i.From, i.To, o)
		case i.Kind == read:
			return text + " → " + o.Row.String()
		case o.Open:
			return text + " → ?"
		}
		return fmt.Sprintf("%s → %v", text, o.Passed)
	},
	DescribeState: func(s any) string { return s.(state).row.String() },
}

func (r row) String() string {
	known := func(text string) change.Content {
		if text == "" {
			return nil
		}
		return change.Content(text)
	}
	if !r.Found {
		return "none"
	}
	text := fmt.Sprintf("%v at %v", known(r.Content), r.Version)
	if r.Refused {
		text += ", refused"
	}
	return text
}
