package decide

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// letterOf makes the dead letter of a record. reason holds no payload.
func letterOf(r *record, code, reason string) store.DeadLetter {
	l := store.DeadLetter{
		Stage: store.StageDecide, Code: code, Reason: reason, State: store.LetterOpen,
		// An id that the database cannot hold must not keep its own letter out.
		Entity:  store.SanitizeText(r.Entity),
		Version: r.version, Offset: r.offset, Part: r.partition,
		DedupKey: fmt.Sprintf("decide/%d/%d/%d", r.version.Generation(), r.partition, r.offset),
	}
	if e := r.Event; e != nil {
		l.Source, l.EventID, l.Payload, l.Topic = e.Source, e.EventID, e.Payload, e.Topic
		// With the event the letter can be replayed.
		l.Headers, _ = json.Marshal(r.span.Trace().AddTo(map[string]string{change.InboxHeader: e.Text()}))
	}
	return l
}

// letterFor is letterOf for one service.
func letterFor(r *record, service, code, reason string) store.DeadLetter {
	l := letterOf(r, code, reason)
	l.Service = service
	l.DedupKey += "/" + service
	return l
}

// failFor adds the dead letter of a service whose evaluation failed.
func (ev *evaluation) failFor(service int, l store.DeadLetter) {
	ev.addLetter(l)
	number := ev.plan.Services[service].Number
	if at, known := slices.BinarySearch(ev.failed, number); !known {
		ev.failed, ev.dirty = slices.Insert(ev.failed, at, number), true
	}
}

// succeedFor makes the letters of failed evaluations obsolete once one succeeds.
func (ev *evaluation) succeedFor(r *record, service int) {
	of := &ev.plan.Services[service]
	at, failed := slices.BinarySearch(ev.failed, of.Number)
	if !failed {
		return
	}
	ev.failed, ev.dirty = slices.Delete(ev.failed, at, at+1), true
	ev.out.Settled = append(ev.out.Settled, store.LetterResolution{Stage: store.StageDecide, Service: of.Name, Entity: r.Entity, State: store.LetterObsolete, Version: r.version})
}
