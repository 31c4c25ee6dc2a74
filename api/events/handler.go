package events

import (
	"context"
	"log/slog"
	"net/http"
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
	for path, batch := range map[string]bool{"events": false, "events:batch": true} {
		s.Handle("POST /v1/sources/{source}/"+path, auth.Ingest, func(w http.ResponseWriter, r *http.Request, who auth.Principal) {
			h.serve(w, r, who, batch)
		})
	}
}

// serve ingests one event, or a batch if the route or the content type says so.
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
	layout := api.Rows{}
	if f.batch() {
		layout = api.Rows{Most: h.opt.MaxRows, Lines: f == lines}
	}
	body, ok := api.ReadBody(w, r, source.MaxBody, layout)
	if !ok {
		return
	}
	if body = bom.Trim(body); bom.UTF16(body) {
		answerProblem(w, http.StatusUnsupportedMediaType, "the body is UTF-16: send JSON in UTF-8")
		return
	}
	values := [][]byte{body}
	switch {
	case f.batch():
		if values, ok = layout.Split(w, body); !ok {
			return
		}
	case f == one && len(body) == 0:
		answerProblem(w, http.StatusBadRequest, "the request has no event")
		return
	}
	ctx, cancel := api.Work(r)
	defer cancel()
	rows, fingerprint := source.rows(r.Header, f, values, key)
	var answer store.Response
	var replayed bool
	if f.batch() {
		answer, replayed, err = h.takeBatch(ctx, who.Tenant, source, rows, key, fingerprint)
	} else {
		answer, replayed, err = h.takeOne(ctx, who.Tenant, source, rows[0])
	}
	if err == nil {
		crash.At(crash.FrontCompleted, source.Name)
	}
	write(w, answer, replayed, err)
}
