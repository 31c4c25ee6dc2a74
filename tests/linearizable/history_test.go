package linearizable

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/seed-86dfc502/weir/change"
)

// history is what all processes of a run saw.
type history struct {
	operations []porcupine.Operation
	open       int // operations that may or may not have had an effect
	fenced     int // decisions of a zombie
	passed     int // inbox records
	// contradictions need no search: the same version sent with two contents, or
	// without a record.
	contradictions []string
}

// sentKey names a change.
type sentKey struct {
	entity  string
	version change.Version
}

// never is later than every tick.
const never = math.MaxInt64

// interval is the time within which a record was decided.
type interval struct{ call, back int64 }

// unknownIntervals has an interval for each record of the inbox.
func unknownIntervals(inbox [][]input) [][]interval {
	records := make([][]interval, len(inbox))
	for p := range inbox {
		records[p] = slices.Repeat([]interval{{never, never}}, len(inbox[p]))
	}
	return records
}

// assemble makes one history of the logs of processes. rest are the changes of the
// log at the end.
func assemble(logs [][]entry, inbox [][]input, rest []change.Change) (history, error) {
	var h history
	published := map[sentKey]change.Content{}
	publish := func(e string, v change.Version, c change.Content) {
		key := sentKey{e, v}
		old, again := published[key]
		if again && string(old) != string(c) {
			h.contradictions = append(h.contradictions, fmt.Sprintf("%s was sent at %v as %v and as %v", e, v, old, c))
			return
		}
		published[key] = c
	}
	records := unknownIntervals(inbox)
	for n, log := range logs {
		calls := map[int64]porcupine.Operation{}
		for _, e := range log {
			switch e.Kind {
			case began:
				calls[e.Operation] = porcupine.Operation{ClientId: n<<16 | e.Client, Input: *e.Input, Call: e.Tick, Output: output{Open: true}, Return: never}
			case ended:
				o := calls[e.Operation]
				delete(calls, e.Operation)
				o.Output, o.Return = *e.Output, e.Tick
				h.operations = append(h.operations, o)
				if o.Input.(input).Kind == advance && !o.Output.(output).Passed {
					h.fenced++
				}
			case nothing:
				delete(calls, e.Operation)
			case handed:
				r := &records[e.Partition][e.Offset]
				r.call = min(r.call, e.Tick)
			case decided:
				r := &records[e.Partition][e.Offset]
				r.back = min(r.back, e.Tick)
			case taken:
				for i := range e.Next {
					r := &records[e.Partition][i]
					r.back = min(r.back, e.Tick)
				}
			case sent:
				publish(e.Entity, e.Version, e.Content)
			}
		}
		for _, o := range calls {
			if o.Input.(input).Kind != read { // which tells nothing and does nothing
				h.operations = append(h.operations, o)
				h.open++
			}
		}
	}
	for _, c := range rest {
		publish(c.Entity, c.Version, c.Content)
	}
	for p := range inbox {
		for i, in := range inbox[p] {
			r := records[p][i]
			if r.call == never || r.back == never {
				return h, fmt.Errorf("record %d of partition %d was not decided", i, p)
			}
			key := sentKey{in.Entity, in.Version}
			content, passed := published[key]
			delete(published, key)
			if passed {
				h.passed++
			}
			h.operations = append(h.operations, porcupine.Operation{ClientId: -1 - p, Input: in, Call: r.call,
				Output: output{Passed: passed, Content: content}, Return: r.back})
		}
	}
	for key := range published {
		h.contradictions = append(h.contradictions, fmt.Sprintf("%s was sent at %v, where the inbox has no record of it", key.entity, key.version))
	}
	return h, nil
}
