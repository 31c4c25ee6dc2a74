package operate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// Held is a service that the guard holds.
type Held struct {
	Service string    `json:"service"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why"`
	store.Hold
	// Changes is how many of the kind are queued, and Groups are samples of them. Both only if
	// the log was read.
	Changes int64         `json:"changes,omitempty"`
	Groups  []SampleGroup `json:"groups,omitempty"`
}

// SampleGroup is held changes that moved the same fields.
type SampleGroup struct {
	Fields  []string `json:"fields,omitempty"` // empty for retractions, and where Before is not known
	Samples []Sample `json:"samples"`
}

// Sample is one held change. Before is the last change that the service got, nil if the log no
// longer has it. After is nil for a retraction.
type Sample struct {
	Entity  string          `json:"entity"`
	Version string          `json:"version"`
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
}

// maxSamples bounds the samples of a hold, and maxBefore the records of a partition that are read
// for their earlier versions.
const (
	maxSamples = 10
	maxBefore  = 20_000
)

// Holds returns the services that the guard holds, by name.
func Holds(ctx context.Context, s Pauses) ([]Held, error) {
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	held := []Held{}
	for _, p := range pauses {
		if p.Hold != nil {
			held = append(held, Held{Service: p.Service, Since: p.Since, Why: p.Reason, Hold: *p.Hold})
		}
	}
	return held, nil
}

// Hold returns the hold of a service, with samples of the held changes from the changes log. The
// error is an *InvalidRequestError for a service that is not held.
func (e *Env) Hold(ctx context.Context, service string) (Held, error) {
	h, err := e.held(ctx, service)
	if err != nil {
		return h, err
	}
	err = e.sample(ctx, &h)
	return h, err
}

// held returns the hold of a service as it is stored.
func (e *Env) held(ctx context.Context, service string) (Held, error) {
	all, err := Holds(ctx, e.Store)
	if err != nil {
		return Held{}, err
	}
	i := slices.IndexFunc(all, func(h Held) bool { return h.Service == service })
	if i < 0 {
		return Held{}, notHeld(service)
	}
	return all[i], nil
}

func notHeld(service string) error { return Invalid("the guard does not hold %s", service) }

// sample counts the queued changes that a hold is about, and adds samples.
func (e *Env) sample(ctx context.Context, h *Held) error {
	numbers, err := e.Store.KnownServices(ctx)
	if err != nil {
		return err
	}
	progress, err := ReadProgress(ctx, e.Store)
	if err != nil {
		return err
	}
	number := numbers[h.Service]
	var samples []*Sample
	of := map[string]*Sample{}
	if err := e.eachChange(ctx, progress, number, h.Service, 0, func(_ int32, c *change.Change) {
		if deliver.GuardKind(c) != h.Kind {
			return
		}
		h.Changes++
		if of[c.Entity] == nil && len(samples) < maxSamples {
			s := &Sample{Entity: c.Entity, Version: c.Version.String(), After: bytes.Clone(c.Doc)}
			of[c.Entity], samples = s, append(samples, s)
		}
	}); err != nil || len(samples) == 0 {
		return err
	}
	if err := e.eachChange(ctx, progress, number, h.Service, maxBefore, func(partition int32, c *change.Change) {
		if s := of[c.Entity]; s != nil && c.Position() < progress.Position(partition, number) {
			s.Before = bytes.Clone(c.Doc)
		}
	}); err != nil {
		return err
	}
	h.Groups = grouped(samples)
	return nil
}

// samplePage bounds a read of the changes log.
const samplePage = 4 << 20

// eachChange calls f with the changes of a service that the log has from its positions on, or from so
// many records of the inbox before them.
func (e *Env) eachChange(ctx context.Context, progress *DeliveryProgress, number int32, service string, before int64, f func(partition int32, c *change.Change)) error {
	for partition := range progress.Marks {
		position := progress.Position(partition, number)
		first := max(0, position-change.Version(min(before, position.Offset())))
		for after, more := first, true; more; {
			tail, err := e.Store.Frames(ctx, partition, after, samplePage)
			if err != nil {
				return err
			}
			more = len(tail.Frames) > 0
			for i := range tail.Frames {
				after = tail.Frames[i].To
				frame, err := change.ParseFrame(tail.Frames[i].Body)
				if err != nil {
					continue // a dead letter says so
				}
				for i := range frame.Slices {
					if frame.Slices[i].Service != number {
						continue
					}
					for c, err := range frame.Slices[i].All(service) {
						if err == nil && c.Position() >= first {
							f(partition, &c)
						}
					}
				}
			}
		}
	}
	return nil
}

// grouped groups samples by the fields that moved, the largest group first.
func grouped(samples []*Sample) []SampleGroup {
	by := map[string]*SampleGroup{}
	for _, s := range samples {
		fields := movedFields(s.Before, s.After)
		key := fmt.Sprintf("%q", fields)
		if by[key] == nil {
			by[key] = &SampleGroup{Fields: fields}
		}
		by[key].Samples = append(by[key].Samples, *s)
	}
	groups := make([]SampleGroup, 0, len(by))
	for _, key := range slices.Sorted(maps.Keys(by)) {
		groups = append(groups, *by[key])
	}
	slices.SortStableFunc(groups, func(a, b SampleGroup) int { return cmp.Compare(len(b.Samples), len(a.Samples)) })
	return groups
}

// movedFields returns the paths of the values that differ between two documents.
func movedFields(before, after json.RawMessage) []string {
	if before == nil || after == nil {
		return nil
	}
	was, is := map[string]string{}, map[string]string{}
	flatten("", before, was)
	flatten("", after, is)
	var moved []string
	for path, value := range was {
		if now, has := is[path]; !has || now != value {
			moved = append(moved, path)
		}
	}
	for path := range is {
		if _, had := was[path]; !had {
			moved = append(moved, path)
		}
	}
	slices.Sort(moved)
	return moved
}

// flatten sets the text of each value of a document that is not an object, by its path.
func flatten(path string, doc json.RawMessage, into map[string]string) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc, &object); err != nil || object == nil {
		into[path] = string(doc)
		return
	}
	for name, value := range object {
		if path != "" {
			name = path + "." + name
		}
		flatten(name, value, into)
	}
}

// The decisions about a hold.
const (
	Release = "release"
	Discard = "discard"
	Extend  = "extend"
)

// EndHold releases, discards or extends a hold, and records it in the audit. It covers the
// changes up to the position to which the inbox is decided. It returns the hold, for a discard
// with the number of changes. The error is an *InvalidRequestError for a service that is not
// held.
func (e *Env) EndHold(ctx context.Context, service, do, why string) (Held, error) {
	h, err := e.held(ctx, service)
	if err != nil {
		return h, err
	}
	marks, err := e.Store.Marks(ctx)
	if err != nil {
		return h, err
	}
	passes := store.Passes{}
	for partition, mark := range marks {
		passes[partition] = mark.Watermark
	}
	audit := store.Audit{Actor: e.Actor, Action: "guard " + do, Service: service, Reason: why}
	var end store.HoldEnd
	switch do {
	case Release:
		end.Release = passes
	case Discard:
		if err := e.sample(ctx, &h); err != nil {
			return h, err
		}
		end.Discard = passes
		audit.Detail = []byte(`{"changes":` + strconv.FormatInt(h.Changes, 10) + `}`)
	default:
		end.Extend = true
	}
	crash.At(crash.HoldEnding, service)
	err = e.Store.EndHold(ctx, service, end, time.Now(), audit)
	crash.At(crash.HoldEnded, service)
	if errors.Is(err, store.ErrNotFound) {
		err = notHeld(service)
	}
	return h, err
}
