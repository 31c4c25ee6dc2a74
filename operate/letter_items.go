package operate

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/store"
)

// LetterLister is the part of a store that LetterItems reads.
type LetterLister interface {
	ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error)
	GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error)
}

// Limits of LetterItems.
const (
	maxLetterGroups = 100
	maxRetrying     = 100
)

// letterRemedy returns the remedy for the cause of a group of dead letters.
func letterRemedy(g store.LetterGroup) string {
	switch do := remedy.OfText(g.Reason); {
	case do != "":
		return do
	case g.Stage == store.StageIngest:
		return "correct the events at their producer, or the source's settings that the reason names (weir dlq edit ID corrects one)"
	case g.Stage == store.StageDecide:
		return "correct the projection or the event that the reason names"
	}
	return "correct what the target's answer names, or ask its operator"
}

// LetterItems returns the status lines of changes and events that did not get through:
// changes that are retried, the oldest first, and groups of open dead letters.
func LetterItems(ctx context.Context, s LetterLister) ([]Item, error) {
	retrying, err := s.ListLetters(ctx, store.LetterFilter{State: store.LetterRetrying, Limit: maxRetrying})
	if err != nil {
		return nil, err
	}
	var all []Item
	for i := range retrying {
		l := &retrying[i]
		if l.Attempts == 0 {
			continue // queued behind an earlier change of its entity
		}
		all = append(all, Item{
			What: l.Service + ", entity " + l.Entity, Level: LevelDegraded, Queued: 1, Since: l.Created.UTC(), NextTry: l.NextTry.UTC(),
			Why: fmt.Sprintf("failed %d times: %s", l.Attempts, l.Reason),
			Do:  cmp.Or(remedy.OfText(l.Reason), "correct what the target's answer names, or ask its operator") + "; retried automatically, and a dead letter after retry.for (weir resume " + l.Service + " --now tries at once)",
		})
	}
	groups, err := s.GroupLetters(ctx, store.LetterFilter{State: store.LetterOpen}, maxLetterGroups)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		do := "--stage " + string(g.Stage)
		switch {
		case g.Service != "":
			do += " --service " + g.Service
		case g.Source != "":
			do += " --source " + g.Source
		}
		all = append(all, Item{
			What: "dead letters of " + cmp.Or(g.Service, g.Source, string(g.Stage)), Level: LevelDegraded, Since: g.First.UTC(),
			Why: humanize.Comma(g.Letters) + " open, " + g.Code + ", for instance: " + g.Reason,
			Do:  letterRemedy(g) + "; then weir dlq replay --all --yes " + do + " --code " + g.Code + " (weir dlq list " + do + " --code " + g.Code + " shows them)",
		})
	}
	return all, nil
}

// Letter is a dead letter as commands show it; its JSON form is the output with --json.
type Letter struct {
	ID            int64             `json:"id"`
	Created       time.Time         `json:"created"` // when it died first
	Last          time.Time         `json:"last"`    // when it died last
	Count         int64             `json:"count"`   // how often it died
	State         store.LetterState `json:"state"`
	Stage         store.Stage       `json:"stage"`
	Code          string            `json:"code"`
	Reason        string            `json:"reason"`
	Source        string            `json:"source,omitempty"`
	Service       string            `json:"service,omitempty"`
	Entity        string            `json:"entity,omitempty"`
	EventID       string            `json:"event_id,omitempty"`
	Version       string            `json:"version,omitempty"` // generation:offset
	Topic         string            `json:"topic,omitempty"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	Payload       *string           `json:"payload,omitempty"`        // where it was read
	PayloadBase64 string            `json:"payload_base64,omitempty"` // when the bytes are not UTF-8
	Edited        bool              `json:"edited,omitempty"`         // the first payload is kept in the store
}

// LetterOf shows a dead letter.
func LetterOf(l store.DeadLetter) Letter {
	shown := Letter{
		ID: l.ID, Created: l.Created, Last: l.Last, Count: l.Count, State: l.State, Stage: l.Stage, Code: l.Code, Reason: l.Reason, Source: l.Source,
		Service: l.Service, Entity: l.Entity, EventID: l.EventID, Topic: l.Topic, Partition: l.Part, Offset: l.Offset, Edited: l.Original != nil,
	}
	if l.Version != 0 {
		shown.Version = l.Version.String()
	}
	switch {
	case l.Payload == nil:
	case utf8.Valid(l.Payload):
		shown.Payload = new(string(l.Payload))
	default:
		shown.PayloadBase64 = base64.StdEncoding.EncodeToString(l.Payload)
	}
	return shown
}
