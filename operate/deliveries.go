package operate

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/store"
)

// DeliveryStore has the delivery history.
type DeliveryStore interface {
	ListAttempts(ctx context.Context, f store.AttemptFilter) ([]store.Attempt, error)
	KnownServices(ctx context.Context) (map[string]int32, error)
}

// DeliveryQuery selects attempts. Zero fields select all.
type DeliveryQuery struct {
	Entity, Service string
	Since, Until    time.Time // Until excludes
	Limit           int       // 0: 100
}

// Delivery is one attempt to deliver a change.
type Delivery struct {
	At      time.Time `json:"at"` // when it began, in UTC
	Service string    `json:"service"`
	Entity  string    `json:"entity"`
	Version string    `json:"version"` // generation:offset
	// Outcome is delivered, failed (tried again), paused (as the whole service was
	// refused), refused or gave_up (both dead letters) or redecided.
	Outcome string `json:"outcome"`
	// Status is the target's answer, as its protocol's number.
	Status int `json:"status,omitempty"`
	// Answer is the beginning of the answer's body, as text: invalid bytes are U+FFFD. Without a
	// status it says why there was no answer. It may hold any text, also control sequences of a
	// terminal.
	Answer string `json:"answer,omitempty"`
	Millis int64  `json:"ms"`
}

// Deliveries returns the newest attempts that are kept, the oldest of them first.
// The error is an *InvalidRequestError for a service that there never was.
func Deliveries(ctx context.Context, s DeliveryStore, q DeliveryQuery) ([]Delivery, error) {
	numbers, err := s.KnownServices(ctx)
	if err != nil {
		return nil, err
	}
	f := store.AttemptFilter{Entity: q.Entity, Since: q.Since, Until: q.Until, Limit: q.Limit}
	if q.Service != "" {
		number, known := numbers[q.Service]
		if !known {
			return nil, Invalid("there is no service %q, and there never was", q.Service)
		}
		f.Service = number
	}
	attempts, err := s.ListAttempts(ctx, f)
	if err != nil {
		return nil, err
	}
	names := make(map[int32]string, len(numbers))
	for name, number := range numbers {
		names[number] = name
	}
	all := make([]Delivery, len(attempts))
	for i, a := range attempts {
		all[i] = Delivery{
			At: a.At, Service: names[a.Service], Entity: a.Entity, Version: a.Version.String(), Outcome: a.Outcome,
			Status: a.Status, Answer: answerText(a.Answer), Millis: a.Took.Milliseconds(),
		}
	}
	slices.Reverse(all)
	return all, nil
}

// answerText returns the begin of an answer as text. A character that the end cuts
// through is left out.
func answerText(b []byte) string {
	for cut := 1; cut < utf8.UTFMax && cut <= len(b); cut++ {
		if start := b[len(b)-cut:]; utf8.RuneStart(start[0]) {
			if !utf8.FullRune(start) {
				b = b[:len(b)-cut]
			}
			break
		}
	}
	return string([]rune(string(b)))
}
