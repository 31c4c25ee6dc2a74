package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// Decision is the caller's next action.
type Decision string

// The decisions.
const (
	Pass      Decision = "pass"      // send it
	Duplicate Decision = "duplicate" // it is what was delivered last
	Stale     Decision = "stale"     // something newer came before it; never send it
)

// Check is one question.
type Check struct {
	Entity string
	// Payload is the document, of any type that encoding/json takes. A json.RawMessage is sent as
	// it is. Ignored when Hash is given.
	Payload any
	// Hash is the caller's own hash of the document, instead of it.
	Hash string
	// EventID lets a repetition of this event be told from news. Optional.
	EventID string
	// Sequence is the producer's order: one below the highest seen is
	// stale. Optional.
	Sequence string
}

// MarshalJSON returns the request's form.
func (c Check) MarshalJSON() ([]byte, error) {
	r := struct {
		Entity   string `json:"entity"`
		Payload  *any   `json:"payload,omitempty"` // nil pointer: absent; nil value: null
		Hash     string `json:"hash,omitempty"`
		EventID  string `json:"event_id,omitempty"`
		Sequence string `json:"sequence,omitempty"`
	}{Entity: c.Entity, Hash: c.Hash, EventID: c.EventID, Sequence: c.Sequence}
	if c.Hash == "" {
		r.Payload = &c.Payload
	}
	return json.Marshal(r)
}

// Answer is the answer to a Check.
type Answer struct {
	Decision Decision `json:"decision"`
	// Version to confirm or to release after a pass.
	Version uint64 `json:"version"`
	// Key is the same for the same version: send it along, so that the receiver
	// knows a repetition.
	Key string `json:"idempotency_key"`
	// Repeated: this version passed before and was not confirmed. Another caller
	// may be sending it.
	Repeated bool `json:"repeated"`
}

// Sent says that a version took effect at the receiver.
type Sent struct {
	Entity  string `json:"entity"`
	Version uint64 `json:"version"`
}

// Confirmed is the answer to a Sent.
type Confirmed struct {
	// Version is the highest that is confirmed.
	Version uint64 `json:"confirmed_version"`
}

// Outcome says how a sending failed.
type Outcome string

// The outcomes.
const (
	Unknown Outcome = "unknown" // it may have taken effect
	Refused Outcome = "refused" // for certain it has not
)

// Failed returns a version that could not be sent.
type Failed struct {
	Entity  string  `json:"entity"`
	Version uint64  `json:"version"`
	Outcome Outcome `json:"outcome,omitempty"` // Unknown when empty
}

// Released is the answer to a Failed.
type Released struct {
	// Released is false when the version was confirmed, or something newer passed.
	Released bool   `json:"released"`
	Version  uint64 `json:"version"` // of the last pass
	// State is "delivered" when the last delivered content is current again,
	// "unknown" when the next content passes in any case.
	State string `json:"state"`
}

// Row is what became of one row of a batch: a value, or an error.
type Row[T any] struct {
	Value T
	// Err is an *Error. A Temporary one was not repeated: later rows of the same
	// entity may have been decided.
	Err error
}

// Service is one check service. It may be used concurrently.
type Service struct {
	client *Client
	path   string
}

// Service returns the service of a name: customer/name@check.
func (c *Client) Service(name string) *Service {
	return &Service{client: c, path: "v1/services/" + url.PathEscape(name) + "/"}
}

// Check asks whether a document is to be sent. The error is an *Error for an
// answer that is no success and is not worth repeating, or the last of all attempts;
// whether it was decided is then unknown, and asking again is safe.
func (s *Service) Check(ctx context.Context, c Check) (a Answer, err error) {
	err = s.client.post(ctx, s.path+"check", c, &a)
	return a, err
}

// Confirm says that a version was sent. It may be repeated, and never goes backwards. The error
// is ErrUnknownVersion for a version that no Check returned. See Check for others.
func (s *Service) Confirm(ctx context.Context, entity string, version uint64) error {
	return s.client.post(ctx, s.path+"confirm", Sent{entity, version}, &Confirmed{})
}

// Release says that a version could not be sent. It may be repeated. Errors are
// those of Confirm.
func (s *Service) Release(ctx context.Context, f Failed) (r Released, err error) {
	err = s.client.post(ctx, s.path+"release", f, &r)
	return r, err
}

// CheckAll is Check for many documents in one request, as many as the server allows. Those of one
// entity are decided in their order. It returns a row for each, in the order of all. The error is
// that of the request as a whole.
func (s *Service) CheckAll(ctx context.Context, all []Check) ([]Row[Answer], error) {
	return batch[Check, Answer](ctx, s, "check:batch", all)
}

// ConfirmAll is Confirm for many versions in one request.
func (s *Service) ConfirmAll(ctx context.Context, all []Sent) ([]Row[Confirmed], error) {
	return batch[Sent, Confirmed](ctx, s, "confirm:batch", all)
}

// ReleaseAll is Release for many versions in one request.
func (s *Service) ReleaseAll(ctx context.Context, all []Failed) ([]Row[Released], error) {
	return batch[Failed, Released](ctx, s, "release:batch", all)
}

func batch[R, T any](ctx context.Context, s *Service, verb string, all []R) ([]Row[T], error) {
	if len(all) == 0 {
		return nil, nil
	}
	var answer struct{ Rows []json.RawMessage }
	if err := s.client.post(ctx, s.path+verb, all, &answer); err != nil {
		return nil, err
	}
	if len(answer.Rows) != len(all) {
		return nil, fmt.Errorf("client: %d rows were answered with %d", len(all), len(answer.Rows))
	}
	rows := make([]Row[T], len(all))
	for i, text := range answer.Rows {
		var failed struct{ Error *Error }
		if err := json.Unmarshal(text, &failed); err != nil {
			return nil, fmt.Errorf("client: malformed answer: %w", err)
		}
		if failed.Error != nil {
			rows[i].Err = failed.Error
			continue
		}
		if err := json.Unmarshal(text, &rows[i].Value); err != nil {
			return nil, fmt.Errorf("client: malformed answer: %w", err)
		}
	}
	return rows, nil
}
