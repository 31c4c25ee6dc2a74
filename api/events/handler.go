package events

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/bom"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// Pusher takes events into the inbox; push.Source is one. The results are in
// the order of the events; nil says that the event is durable.
type Pusher interface {
	Push(ctx context.Context, events ...*message.Message) []error
}

// Source is a source that takes posted events.
type Source struct {
	Name      string
	Extractor ingest.Extractor
	Push      Pusher
	MaxBody   int64 // bytes of a request
	Patches   bool  // its payloads are patches
}

// headers adds to meta the request's headers that the source's locators read.
func (s *Source) headers(h http.Header, meta message.Metadata) message.Metadata {
	if meta == nil {
		meta = message.Metadata{}
	}
	for _, name := range []string{
		s.Extractor.Entity.Header, s.Extractor.EventID.Header, s.Extractor.Operation.Header, s.Extractor.Sequence.Header,
	} {
		if _, there := meta[name]; there || name == "" {
			continue
		}
		if value := h.Get(name); value != "" {
			meta.Set(name, value)
		}
	}
	return meta
}

// Options of a Handler. All fields are needed.
type Options struct {
	// Source returns the source at a path, /v1/sources/<path>/events. It may be
	// called concurrently.
	Source func(path string) (*Source, bool)
	Ledger store.Ledger
	// Keep is how long a key is remembered.
	Keep time.Duration
	// MaxRows bounds a batch.
	MaxRows int
	Metrics *Metrics
	Logger  *slog.Logger
}

// Handler handles the routes of events. It may be used concurrently.
type Handler struct {
	opt     Options
	ledger  ledger
	metrics *Metrics
}

// New makes a handler.
func New(o Options) *Handler {
	return &Handler{opt: o, ledger: newLedger(o), metrics: o.Metrics}
}

// Register adds the routes of h to s.
func (h *Handler) Register(s *api.Server) {
	s.Handle("POST /v1/sources/{source}/events", auth.Ingest, h.Events)
	s.Handle("POST /v1/sources/{source}/events:batch", auth.Ingest, h.Batch)
}

// Events takes one event, or a batch whose content type says that it is one.
func (h *Handler) Events(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	h.serve(w, r, who, false)
}

// Batch takes a batch.
func (h *Handler) Batch(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	h.serve(w, r, who, true)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, who auth.Principal, batch bool) {
	path := r.PathValue("source")
	source, ok := h.opt.Source(path)
	switch {
	case ok && !who.May(auth.Ingest, source.Name), !ok && !who.May(auth.Ingest, path):
		api.Forbidden(w, who)
		return
	case !ok:
		answerProblem(w, http.StatusNotFound, "there is no source that takes events at this path")
		return
	}
	f := formOf(r.Header, batch)
	if f == unknown {
		accept := "application/json, application/cloudevents+json, application/cloudevents-batch+json, application/x-ndjson"
		if batch {
			accept = "application/json (an array), application/cloudevents-batch+json, application/x-ndjson"
		}
		w.Header().Set("Accept", accept)
		answerProblem(w, http.StatusUnsupportedMediaType, "send one of "+accept+", in UTF-8")
		return
	}
	key, err := keyOf(r.Header)
	if err != nil {
		answerProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	body, ok := api.ReadBody(w, r, source.MaxBody, h.rows(f))
	if !ok {
		return
	}
	if body = bom.Trim(body); bom.UTF16(body) {
		answerProblem(w, http.StatusUnsupportedMediaType, "the body is UTF-16: send JSON in UTF-8")
		return
	}
	ctx, cancel := api.Work(r)
	defer cancel()
	if f.batch() {
		h.serveBatch(ctx, w, r, who.Tenant, source, f, body, key)
	} else {
		h.serveOne(ctx, w, r, who.Tenant, source, f, body, key)
	}
}

// rows returns the layout of a body of form f.
func (h *Handler) rows(f form) api.Rows {
	if f.batch() {
		return api.Rows{Most: h.opt.MaxRows, Lines: f == lines}
	}
	return api.Rows{}
}

// serveOne answers a request with one event.
func (h *Handler) serveOne(ctx context.Context, w http.ResponseWriter, r *http.Request, tenant string, s *Source, f form, body []byte, key string) {
	value := body
	var meta message.Metadata
	var wrong error
	switch f {
	case binary:
		value, meta, wrong = binaryEvent(r.Header, body)
	case structured:
		value, meta, wrong = structuredEvent(body)
	default:
		if len(body) == 0 {
			answerProblem(w, http.StatusBadRequest, "the request has no event")
			return
		}
	}
	one := s.prepare(value, s.headers(r.Header, meta), nil, key != "", wrong)
	if key != "" {
		one.key, one.shared = requestKey(key), false
	}
	if err := h.take(ctx, tenant, s, []*row{one}); err != nil {
		ledgerFailed(w)
		return
	}
	crash.At(crash.FrontCompleted, s.Name)
	switch one.result.Status {
	case Invalid:
		invalid(w, one.result.Refusal)
	case Conflicting:
		conflict(w, one.event.Fingerprint(), one.claimed.Fingerprint, one.shared)
	case Duplicate:
		send(w, one.answer, true)
	case Accepted, Skipped:
		if one.key == "" || one.event == nil {
			one.answer = store.Response{Status: http.StatusAccepted, Body: encode(one.result)}
		}
		send(w, one.answer, false)
	default:
		unavailable(w, "%v", one.lost)
	}
}

// serveBatch answers a request with a batch.
func (h *Handler) serveBatch(ctx context.Context, w http.ResponseWriter, r *http.Request, tenant string, s *Source, f form, body []byte, key string) {
	values, ok := h.rows(f).Split(w, body)
	if !ok {
		return
	}
	rows, fingerprint := s.rows(r, f, values, key)
	if !slices.ContainsFunc(rows, func(r *row) bool { return r.event != nil }) {
		key = ""
	}
	var keys []store.ClaimRequest
	if key != "" {
		keys = append(keys, store.ClaimRequest{Key: requestKey(key), Fingerprint: fingerprint})
	}
	whole := store.ClaimResult{State: store.ClaimOpen}
	var answer store.Response
	stored, err := h.ledger.once(ctx, tenant, keys, func(found []store.ClaimResult) (done []store.Completion, err error) {
		if key != "" {
			whole = found[0]
		}
		if whole.State != store.ClaimOpen {
			return nil, nil
		}
		if answer, err = h.answer(ctx, tenant, s, rows); err == nil && key != "" {
			done = append(done, store.Completion{ID: whole.ID, Response: answer})
		}
		return done, err
	})
	switch {
	case err != nil:
		h.failed(w, len(rows), err)
		return
	case whole.State == store.ClaimDone:
		h.metrics.count(s.Name, Duplicate)
		send(w, whole.Response, true)
		return
	case whole.State == store.ClaimConflict:
		h.metrics.count(s.Name, Conflicting)
		conflict(w, fingerprint, whole.Fingerprint, false)
		return
	case len(stored) > 0:
		answer = stored[0]
	}
	crash.At(crash.FrontCompleted, s.Name)
	send(w, answer, false)
}

// rows prepares the events of a batch, and returns its fingerprint. Where the
// request has a key and an event none, it gets one by its place.
func (s *Source) rows(r *http.Request, f form, values [][]byte, key string) ([]*row, [32]byte) {
	rows := make([]*row, len(values))
	fingerprint := sha256.New()
	fingerprint.Write([]byte("weir batch 1"))
	for i, value := range values {
		var meta message.Metadata
		var wrong error
		if f == batched {
			value, meta, wrong = structuredEvent(value)
		}
		one := s.prepare(value, s.headers(r.Header, meta), &i, key != "", wrong)
		rows[i] = one
		// What cannot be read is told apart by its bytes.
		sum := sha256.Sum256(append([]byte("refused "), values[i]...))
		if one.event != nil {
			sum = one.event.Fingerprint()
			if key != "" && one.key == "" {
				one.key = rowKey(key, i)
			}
		}
		fingerprint.Write(sum[:])
	}
	return rows, [32]byte(fingerprint.Sum(nil))
}

// failed answers a batch of so many rows that was not taken.
func (h *Handler) failed(w http.ResponseWriter, rows int, err error) {
	if lost := (*lostError)(nil); errors.As(err, &lost) {
		unavailable(w, "%d of %d events are not known to be durable (%v); those that are count as duplicates then", lost.rows, rows, lost.first)
	} else {
		ledgerFailed(w)
	}
}

// lostError says that rows of a batch are not known to be durable.
type lostError struct {
	rows  int
	first error
}

func (e *lostError) Error() string { return "events are not known to be durable" }

// answer takes the rows and returns the answer to the batch.
func (h *Handler) answer(ctx context.Context, tenant string, s *Source, rows []*row) (store.Response, error) {
	if err := h.take(ctx, tenant, s, rows); err != nil {
		return store.Response{}, err
	}
	a := store.Response{Status: http.StatusAccepted}
	results := Results{Rows: make([]Result, len(rows))}
	lost := &lostError{}
	for i, r := range rows {
		results.Rows[i] = r.result
		if r.lost != nil {
			if lost.rows++; lost.first == nil {
				lost.first = r.lost
			}
		}
		switch r.result.Status {
		case Accepted, Duplicate, Skipped:
		default:
			a.Status = http.StatusMultiStatus
		}
	}
	if lost.rows > 0 {
		return store.Response{}, lost
	}
	a.Body = encode(results)
	return a, nil
}

// ledgerFailed answers a request that the ledger did not serve.
func ledgerFailed(w http.ResponseWriter) {
	unavailable(w, "the ledger of idempotency keys did not answer in time")
}
