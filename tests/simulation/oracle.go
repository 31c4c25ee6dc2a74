package simulation

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// expected works out what each service must have seen, from the inbox. A refusal
// changes nothing of that: refused content is suppressed like delivered content.
func (w *world) expected(records [][]change.Record) (oracle.Expected, error) {
	w.model = oracle.NewModel()
	rows := map[string]int{}
	for p, part := range w.inbox.parts {
		var heard change.Session // by the partition, of the only log
		for offset, rec := range part {
			r := records[p][offset]
			if r.Control != nil && r.Control.Action == change.Barrier {
				if r.Control.Session.Number > heard.Number {
					heard = r.Control.Session
				}
				continue
			}
			if r.Event != nil && r.Event.Source == shop && r.Event.Session != heard {
				continue
			}
			version, under := w.versionAt(p, offset), w.decidedUnder(p, offset)
			if r.Control != nil {
				if err := w.control(r, version, under, rec.at); err != nil {
					return nil, err
				}
				continue
			}
			e := oracle.Event{Source: r.Event.Source, Stream: r.Event.Topic, Partition: r.Event.Partition, Offset: r.Event.Offset, Index: r.Event.Index, Headers: map[string]string{"sequence": r.Event.Sequence},
				Version: version, Key: r.Entity, Value: rec.Value}
			if e.Stream != "" && e.Source != shop {
				e.Value = w.sources[0].parts[e.Partition][e.Offset].Value // as its source wrote it
			}
			if err := w.model.Apply(under.rules, e); err != nil {
				return nil, err
			}
			if e.Source == shop {
				if err := w.database.ordered(w.model, r.Entity, rows); err != nil {
					return nil, err
				}
			}
		}
	}
	for range w.model.TooLarge {
		w.count("change too large")
	}
	return w.model.Expected, nil
}

// control applies a control record to the model.
func (w *world) control(r change.Record, version uint64, under *configuration, at time.Time) error {
	switch c := r.Control; {
	case c.Action == change.Refuse:
		w.model.Refuse(r.Entity, uint64(c.Version), c.Services)
		for _, service := range c.Services {
			w.refused[oracle.ID{Service: service, Entity: r.Entity, Version: uint64(c.Version)}] = true
		}
	case c.Action == change.Purge:
		if w.model.Purge(r.Entity, uint64(c.Version)) {
			w.count("purged")
		}
	case c.Action != change.Redecide || !c.Force || c.Version == 0:
		return fmt.Errorf("unexpected control record: %+v", c)
	case c.Actor == change.Refresh:
		sent, err := w.model.Refresh(under.rules, r.Entity, version, uint64(c.Version), c.Services)
		for _, service := range sent {
			of := oracle.ID{Service: service, Entity: r.Entity}
			w.refreshed[of] = append(w.refreshed[of], at)
		}
		return err
	default:
		w.model.Redecide(under.rules, r.Entity, version, uint64(c.Version), c.Services)
	}
	return nil
}

func header(e entry, key string) []byte {
	for _, h := range e.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

// decoded reads the inbox.
func (w *world) decoded() ([][]change.Record, error) {
	records := make([][]change.Record, len(w.inbox.parts))
	for p, part := range w.inbox.parts {
		for _, rec := range part {
			r, err := change.DecodeRecord(rec.Key, header(rec, change.InboxHeader), rec.Value)
			if err != nil {
				return nil, err
			}
			records[p] = append(records[p], r)
		}
	}
	return records, nil
}

// check compares the customers' records with the expected ones, and returns how
// many changes these are.
func (w *world) check() (changes int, err error) {
	if n := w.faults["gap"]; n > 0 && w.faults["retention"] == 0 {
		return 0, fmt.Errorf("operators were told of %d gaps of a log that lost nothing", n)
	}
	records, err := w.decoded()
	if err != nil {
		return 0, err
	}
	if err := w.taken(records); err != nil {
		return 0, err
	}
	want, err := w.expected(records)
	if err != nil {
		return 0, err
	}
	for _, c := range w.sinks {
		for _, cs := range want[c.service] {
			changes += len(cs)
		}
		if err := cmp.Or(w.holds(want, c), w.paced(want, c), w.refreshes(want, c)); err != nil {
			return changes, err
		}
	}
	if err := w.rowsRefused(records); err != nil {
		return changes, err
	}
	return changes, w.buried()
}

// holds checks one customer.
func (w *world) holds(want oracle.Expected, c *customer) error {
	if err := oracle.CheckAttempts(want, c.service, c.distinct()); err != nil {
		return fmt.Errorf("attempt: %w", err)
	}
	if !slices.ContainsFunc(w.newest().plan.Services, func(s decide.Service) bool { return s.Name == c.service }) {
		return nil // it is no customer any more, and gets the rest or not
	}
	// Changes that the customer refuses, or may have or not.
	fate := map[place]verdict{}
	for _, r := range c.attempts {
		fate[place{r.Entity, r.Version}] = w.verdict(c.service, r.Key)
	}
	if c.service == stateService {
		if c.back != nil && !w.rules.NoVersionCheck {
			return c.back
		}
		for id, cs := range want[c.service] {
			newest := cs[len(cs)-1]
			f, known := fate[place{id, newest.Version}]
			if f != welcome || w.model.Unknown(c.service, id) || w.givenUp(c.service, id, newest.Version) {
				continue // it may hold any older one, or this one
			}
			one := oracle.Expected{c.service: {id: cs}}
			got := map[string]oracle.Record{}
			if r, ok := c.newest[id]; ok {
				got[id] = r
			}
			if err := oracle.CheckState(one, c.service, got); err != nil {
				return err
			}
			if _, has := got[id]; !known && !has {
				return fmt.Errorf("%s, entity %s: lost: %s %d was never sent", c.service, id, newest.Op, newest.Version)
			}
		}
		return nil
	}
	wanted := oracle.Expected{c.service: {}}
	for id, cs := range want[c.service] {
		wanted[c.service][id] = slices.DeleteFunc(slices.Clone(cs), func(m oracle.Change) bool {
			at := place{id, m.Version}
			return fate[at] != welcome || w.told(c.service, id, m.Version) || w.givenUp(c.service, id, m.Version)
		})
	}
	var got []oracle.Record
	seen := map[string]bool{}
	for _, r := range c.records {
		// A sink without a guard gets a change again when its process died before
		// its position was saved. Its first effect must still be in its place.
		if c.service == dumbService && !w.setup.gentle && seen[r.Key] {
			continue
		}
		seen[r.Key] = true
		if w.told(c.service, r.Entity, r.Version) || w.givenUp(c.service, r.Entity, r.Version) {
			continue // a late request of an earlier owner may bring it yet
		}
		switch w.verdict(c.service, r.Key) {
		case welcome:
			got = append(got, r)
		case refused:
			return fmt.Errorf("%s, entity %s: version %d was refused and is there", c.service, r.Entity, r.Version)
		}
	}
	return oracle.CheckLog(wanted, c.service, got)
}

// givenUp reports whether the last attempt at a change failed: faults may meet a change
// that the target would take, and it is given up in time if others succeed meanwhile.
func (w *world) givenUp(service, entity string, version uint64) bool {
	return slices.ContainsFunc(w.mem.state.letters, func(l store.DeadLetter) bool {
		return (l.Code == "gave_up" || l.Code == deliver.CodeServiceRemoved) && l.Service == service && l.Entity == entity && uint64(l.Version) == version
	})
}

// versionAt returns the version of a record of the inbox.
func (w *world) versionAt(partition, offset int) uint64 {
	generation := uint16(1)
	if w.renewed.Load() && int64(offset) >= w.second[int32(partition)] {
		generation = 2
	}
	return uint64(change.NewVersion(generation, int64(offset)))
}

// decidedUnder returns the configuration under which a record was decided.
func (w *world) decidedUnder(partition, offset int) *configuration {
	if w.deployed.Load() && int64(offset) >= w.since[int32(partition)] {
		return w.later
	}
	return &w.configuration
}

// outdated reports whether a change was decided under another configuration than the
// newest: when it is refused it is decided again, and no customer of before need have it.
func (w *world) outdated(service, entity string, v uint64) bool {
	at := change.Version(v)
	return w.decidedUnder(w.inbox.partitionOf([]byte(entity)), int(at.Offset())) != w.newest()
}

// place is the place of a change.
type place struct {
	entity  string
	version uint64
}

// distinct returns the attempts without repetitions of the same bytes.
func (c *customer) distinct() []oracle.Record {
	var all []oracle.Record
	for _, r := range c.attempts {
		same := func(o oracle.Record) bool {
			return o.Key == r.Key && o.Version == r.Version && o.Entity == r.Entity && o.Op == r.Op && bytes.Equal(o.Doc, r.Doc)
		}
		if !slices.ContainsFunc(all, same) {
			all = append(all, r)
		}
	}
	return all
}

// buried checks that changes refused by a log sink are dead letters. After a restore
// the store may have forgotten it.
func (w *world) buried() error {
	if w.restore {
		return nil
	}
	for _, c := range w.sinks {
		for _, r := range c.attempts {
			if c.service == stateService || w.verdict(c.service, r.Key) == welcome {
				continue
			}
			if w.told(c.service, r.Entity, r.Version) || w.outdated(c.service, r.Entity, r.Version) {
				continue
			}
			if _, ok := w.mem.state.keys["deliver/"+c.service+"/"+r.Key]; !ok {
				return fmt.Errorf("%s, entity %s: version %d failed and is no dead letter", c.service, r.Entity, r.Version)
			}
		}
	}
	return nil
}

// rowsRefused checks that no delivery became a dead letter before that was in the
// inbox, that changes that are too large did, and that nothing else became
// one.
func (w *world) rowsRefused(records [][]change.Record) error {
	if len(w.mem.state.letters) == 0 && len(w.model.TooLarge) == 0 {
		return nil
	}
	refusals := map[string]map[place]bool{} // by service
	for _, part := range records {
		for _, r := range part {
			if c := r.Control; c != nil && c.Action == change.Refuse {
				for _, s := range c.Services {
					if refusals[s] == nil {
						refusals[s] = map[place]bool{}
					}
					refusals[s][place{r.Entity, uint64(c.Version)}] = true
				}
			}
		}
	}
	tooLarge := maps.Clone(w.model.TooLarge)
	for _, l := range w.mem.state.letters {
		if at := (oracle.ID{Service: l.Service, Entity: l.Entity, Version: uint64(l.Version)}); l.Code == "oversized" {
			if _, may := w.model.TooLarge[at]; !may {
				return fmt.Errorf("%s, entity %s: version %s is a dead letter for its size", l.Service, l.Entity, l.Version)
			}
			delete(tooLarge, at)
			continue
		}
		if l.Stage != store.StageDeliver {
			return fmt.Errorf("a dead letter of %s: %s: %s", l.Stage, l.Code, l.Reason)
		}
		if l.Code == deliver.CodeServiceRemoved {
			continue // nobody replays it
		}
		if tried := l.Last.Sub(l.Created); l.Code == "gave_up" && tried < retryFor {
			return fmt.Errorf("%s, entity %s: version %s was given up after %v of %v", l.Service, l.Entity, l.Version, tried, retryFor)
		}
		if !refusals[l.Service][place{l.Entity, uint64(l.Version)}] {
			return fmt.Errorf("%s, entity %s: version %s is a dead letter without a refusal", l.Service, l.Entity, l.Version)
		}
	}
	for at, must := range tooLarge {
		if must && !w.restore {
			return fmt.Errorf("%s, entity %s: version %d is too large and no dead letter", at.Service, at.Entity, at.Version)
		}
	}
	return nil
}

// taken checks that every event of the sources is in the inbox, in the order of
// its source and entity.
func (w *world) taken(records [][]change.Record) error {
	type origin struct {
		partition int32
		offset    int64
	}
	type worker struct {
		partition int32
		entity    string
	}
	places := map[origin]bool{}   // origins in the inbox
	highest := map[worker]int64{} // the highest origin so far
	contents := map[string]bool{} // event ids with content
	for _, part := range records {
		for _, r := range part {
			if r.Event == nil {
				continue
			}
			o := r.Event.Origin
			if o.Topic == "" || o.Source == shop {
				continue
			}
			source := w.sources[0].parts[o.Partition][o.Offset]
			place, worker := origin{o.Partition, o.Offset}, worker{o.Partition, r.Entity}
			// A repetition that the gate let through late is the fence's business.
			repeated := bytes.Contains(source.Value, []byte(`"event"`)) && contents[string(source.Value)]
			if !places[place] && !repeated {
				if o.Offset < highest[worker] {
					return fmt.Errorf("ingest, entity %s: event %v is out of order", r.Entity, place)
				}
				highest[worker] = o.Offset
			}
			places[place] = true
			contents[string(source.Value)] = true
		}
	}
	for p, part := range w.sources[0].parts {
		for offset, rec := range part {
			again := rec.Value != nil && bytes.Contains(rec.Value, []byte(`"event"`)) && contents[string(rec.Value)]
			if place := (origin{int32(p), int64(offset)}); !places[place] && !again {
				return fmt.Errorf("ingest, entity %s: lost: event %v %s", rec.Key, place, rec.Value)
			}
		}
	}
	if len(w.sources) == 1 {
		return nil
	}
	return w.pushed()
}

// pushed checks events without positions: each is in the inbox at least once,
// and for the first time in its order.
func (w *world) pushed() error {
	first := map[string]int{} // event to its place among those of its entity
	deletes := map[string]int{}
	for _, part := range w.inbox.parts {
		for i, rec := range part {
			r, err := change.DecodeRecord(rec.Key, header(rec, change.InboxHeader), rec.Value)
			if err != nil || r.Event == nil || r.Event.Source != "lab" {
				continue
			}
			name := string(rec.Value)
			if _, again := first[name]; !again && rec.Value != nil {
				first[name] = i
			}
			if rec.Value == nil {
				deletes[string(rec.Key)]++
			}
		}
	}
	before := map[string]int{}
	for _, rec := range w.sources[1].parts[0] {
		id := string(rec.Key)
		if strings.Contains(string(rec.Value), `"op"`) {
			if deletes[id]--; deletes[id] < 0 {
				return fmt.Errorf("ingest, entity %s: lost: a pushed delete", id)
			}
			continue
		}
		place, ok := first[string(rec.Value)]
		if !ok {
			return fmt.Errorf("ingest, entity %s: lost: %s", id, rec.Value)
		}
		if last, ok := before[id]; ok && place < last {
			return fmt.Errorf("ingest, entity %s: %s is out of order", id, rec.Value)
		}
		before[id] = place
	}
	return nil
}
