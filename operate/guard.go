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

	"github.com/seed-86dfc502/weir/canonicaltree"
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

// maxSamples bounds the samples of a hold, maxMoved the fields of a sample, and maxBefore the
// records of a partition that are read for their earlier versions.
const (
	maxSamples = 10
	maxMoved   = 20
	maxBefore  = 20_000
)

// GuardStore is the part of a store that the guard's holds need.
type GuardStore interface {
	Pauses
	ProgressStore
	KnownServices(ctx context.Context) (map[string]int32, error)
	Frames(ctx context.Context, partition int32, after change.Version, bytes int) (store.Tail, error)
	EndHold(ctx context.Context, service string, end store.HoldEnd, now time.Time, audit store.Audit) error
}

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
func Hold(ctx context.Context, s GuardStore, service string) (Held, error) {
	h, err := heldOf(ctx, s, service)
	if err == nil {
		err = h.sample(ctx, s)
	}
	return h, err
}

// heldOf returns the hold of a service as it is stored.
func heldOf(ctx context.Context, s Pauses, service string) (Held, error) {
	all, err := Holds(ctx, s)
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
func (h *Held) sample(ctx context.Context, from GuardStore) error {
	numbers, err := from.KnownServices(ctx)
	if err != nil {
		return err
	}
	progress, err := ReadProgress(ctx, from)
	if err != nil {
		return err
	}
	number := numbers[h.Service]
	var samples []*Sample
	of := map[string]*Sample{}
	if err := eachChange(ctx, from, progress, number, h.Service, 0, func(_ int32, c *change.Change) {
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
	if err := eachChange(ctx, from, progress, number, h.Service, maxBefore, func(partition int32, c *change.Change) {
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
func eachChange(ctx context.Context, s GuardStore, progress *DeliveryProgress, number int32, service string, before int64, f func(partition int32, c *change.Change)) error {
	for partition := range progress.Marks {
		position := progress.Position(partition, number)
		first := max(0, position-change.Version(min(before, position.Offset())))
		for after, more := first, true; more; {
			tail, err := s.Frames(ctx, partition, after, samplePage)
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
	was, err := canonicaltree.Parse(before)
	is, err2 := canonicaltree.Parse(after)
	if err != nil || err2 != nil {
		return nil // projections write JSON
	}
	var moved []string
	canonicaltree.Diff(was.Root(), is.Root(), func(p canonicaltree.Path, _, _ canonicaltree.Node) bool {
		moved = append(moved, p.String())
		return len(moved) < maxMoved
	})
	return moved
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
func EndHold(ctx context.Context, s GuardStore, service, do, actor, why string) (Held, error) {
	h, err := heldOf(ctx, s, service)
	if err != nil {
		return h, err
	}
	marks, err := s.Marks(ctx)
	if err != nil {
		return h, err
	}
	passes := store.Passes{}
	for partition, mark := range marks {
		passes[partition] = mark.Watermark
	}
	audit := store.Audit{Actor: actor, Action: "guard " + do, Service: service, Reason: why}
	var end store.HoldEnd
	switch do {
	case Release:
		end.Release = passes
	case Discard:
		if err := h.sample(ctx, s); err != nil {
			return h, err
		}
		end.Discard = passes
		audit.Detail = []byte(`{"changes":` + strconv.FormatInt(h.Changes, 10) + `}`)
	default:
		end.Extend = true
	}
	crash.At(crash.HoldEnding, service)
	err = s.EndHold(ctx, service, end, time.Now(), audit)
	crash.At(crash.HoldEnded, service)
	if errors.Is(err, store.ErrNotFound) {
		err = notHeld(service)
	}
	return h, err
}
