package linearizable

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The model of a check service, for porcupine: one history per entity. It is
// written from the rules of docs/check-api.md and shares nothing with package
// checks. Versions are counted from 1 here, for the processes' clocks do not move.

type askKind string

const (
	asks     askKind = "check"
	confirms askKind = "confirm"
	gives    askKind = "release"
)

// ask is one request.
type ask struct {
	Kind     askKind
	Entity   string
	Content  string // of asks
	Event    string
	Sequence int // 0 is none
	Version  int64
	Refused  bool // of gives
}

// reply is what came back.
type reply struct {
	Open     bool // nobody knows whether it was decided
	Decision string
	Version  int64
	Repeated bool
	Unheard  bool // of confirms and gives: the version was never given
	Done     bool // of gives
	Known    bool
}

const remembers = 16

type sight struct {
	event, content string
	version        int64
}

// desk is one entity. It can be compared.
type desk struct {
	last      int64  // version that was given last
	stands    string // content that the next one is compared with; empty: unknown
	page      int64  // its version
	confirmed int64
	holds     string // content of the confirmed version, empty when it is forgotten
	once      bool   // the last version was given once, on top of what was confirmed
	back      bool   // it was given back
	top       int
	seen      [remembers]sight // newest first
}

func (d desk) step(in ask, out reply) (bool, desk) {
	want := reply{}
	switch in.Kind {
	case asks:
		d, want = d.check(in)
	case confirms:
		d, want = d.confirm(in.Version)
	case gives:
		d, want = d.release(in.Version, in.Refused)
	}
	return out.Open || out == want, d
}

func (d desk) check(in ask) (desk, reply) {
	known := false
	for _, s := range d.seen {
		if in.Event != "" && s.event == in.Event && s.content == in.Content {
			if d.back && s.version == d.last {
				continue // given back, and nothing newer passed: news again
			}
			if known = true; s.version != d.page || d.stands == "" {
				return d, reply{Decision: "stale", Version: d.last}
			}
		}
	}
	if !known && in.Sequence != 0 && in.Sequence < d.top {
		return d, reply{Decision: "stale", Version: d.last}
	}
	out := reply{Decision: "pass"}
	switch {
	case d.stands != in.Content:
		d.once = d.stands != "" && d.page == d.confirmed && d.stands == d.holds
		d.last++
		d.stands, d.page, d.back = in.Content, d.last, false
	case d.page == d.confirmed:
		out.Decision = "duplicate"
	default:
		out.Repeated, d.once = true, false
	}
	out.Version = d.page
	if in.Event != "" && !known {
		kept := []sight{{in.Event, in.Content, d.page}}
		for _, s := range d.seen {
			if s.event != in.Event || s.content != in.Content {
				kept = append(kept, s)
			}
		}
		d.seen = [remembers]sight{}
		copy(d.seen[:], kept)
	}
	d.top = max(d.top, in.Sequence)
	return d, out
}

func (d desk) confirm(v int64) (desk, reply) {
	if v > d.last {
		return d, reply{Unheard: true}
	}
	if v > d.confirmed {
		d.confirmed, d.holds = v, ""
		if d.back {
			d.stands = ""
		} else if v == d.last {
			d.holds = d.stands
		}
	}
	return d, reply{Version: d.confirmed}
}

func (d desk) release(v int64, refused bool) (desk, reply) {
	switch {
	case v > d.last:
		return d, reply{Unheard: true}
	case v < d.last || v <= d.confirmed:
		return d, reply{Version: d.last}
	case d.back && refused:
	case !d.back && refused && d.once:
		d.stands, d.page = d.holds, d.confirmed
	default:
		d.stands = ""
	}
	d.back = true
	return d, reply{Done: true, Known: d.stands != "", Version: d.last}
}

var checkModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byEntity := map[string][]porcupine.Operation{}
		for _, o := range history {
			e := o.Input.(ask).Entity
			byEntity[e] = append(byEntity[e], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byEntity {
			parts = append(parts, part)
		}
		return parts
	},
	Init:              func() any { return desk{} },
	Step:              func(s, in, out any) (bool, any) { return s.(desk).step(in.(ask), out.(reply)) },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
}
