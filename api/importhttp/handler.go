package importhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/problem"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/store"
)

// Options of a Handler.
type Options struct {
	Store store.Imports
	// Importer returns nil while the process does not ingest.
	Importer func() *imports.Importer
	// MaxRow returns the largest row of a source in bytes; false without such a source.
	MaxRow func(source string) (int, bool)
	// MaxFile bounds a file in bytes.
	MaxFile int64
	// MaxOpen bounds the incomplete imports of a tenant.
	MaxOpen int
	Letters *api.Letters // of a source; nil has no bound
	Logger  *slog.Logger
}

// Handler serves the routes. It may be used concurrently.
type Handler struct{ opt Options }

// New makes a handler.
func New(opt Options) *Handler { return &Handler{opt} }

// Mount adds the routes to a server.
func (h *Handler) Mount(s *api.Server) {
	s.HandleUpload("POST /v1/imports", auth.Import, h.opt.MaxFile, h.receive)
	s.Handle("GET /v1/imports", auth.Import, h.list)
	s.Handle("GET /v1/imports/{id}", auth.Import, h.show)
	s.HandleUpload("GET /v1/imports/{id}/errors", auth.Import, 0, h.errors)
	s.Handle("POST /v1/imports/{id}/cancel", auth.Import, h.cancel)
}

// maxName bounds the name of a file, in bytes.
const maxName = 255

// receive imports a file for a principal.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	f, kind, err := fileOf(r)
	if err != nil {
		refuseFile(w, kind, err)
		return
	}
	if !who.May(auth.Import, f.Source) {
		hangUp(w)
		api.Forbidden(w, who)
		return
	}
	f.Tenant, f.MaxOpen, f.Actor = who.Tenant, h.opt.MaxOpen, "anonymous"
	if who.ID != "" {
		f.Actor = "token " + who.ID
	}
	h.run(w, r, f)
}

// ServeOperator imports a file for a command, which says tenant and actor in the query.
// The caller has checked its token.
func (h *Handler) ServeOperator(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	tenant, actor := q.Get("tenant"), q.Get("actor")
	q.Del("tenant")
	q.Del("actor")
	r.URL.RawQuery = q.Encode()
	f, kind, err := fileOf(r)
	if err != nil || tenant == "" || actor == "" {
		refuseFile(w, kind, cmp.Or(err, errors.New("the query must name tenant and actor")))
		return
	}
	f.Tenant, f.Actor = tenant, actor
	h.run(w, r, f)
}

// refuseFile answers a request whose query or, with kind, content type is wrong.
func refuseFile(w http.ResponseWriter, kind bool, err error) {
	hangUp(w)
	status := http.StatusUnprocessableEntity
	if kind {
		w.Header().Set("Accept-Post", "application/x-ndjson, text/csv")
		status = http.StatusUnsupportedMediaType
	}
	problem.Write(w, problem.Problem{Status: status, Detail: err.Error()})
}

func (h *Handler) run(w http.ResponseWriter, r *http.Request, f imports.File) {
	var found bool
	if f.MaxRow, found = h.opt.MaxRow(f.Source); !found {
		hangUp(w)
		api.NotFound(w, "there is no such source")
		return
	}
	if !h.opt.Letters.Admit(w, r, f.Source) {
		return
	}
	importer := h.opt.Importer()
	if importer == nil {
		hangUp(w)
		api.Unavailable(w, time.Second, "this process does not ingest")
		return
	}
	f.MaxSize = h.opt.MaxFile
	// A read that blocks ends with the process.
	defer context.AfterFunc(importer.Ending(), func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) })()
	i, err := importer.Run(r.Context(), f, r.Body)
	if i.ID != "" {
		w.Header().Set("Location", "/v1/imports/"+i.ID)
	}
	if err != nil {
		h.opt.Logger.Warn("import interrupted", "event", "import.interrupted", "import", i.ID, "source", f.Source, "rows", i.Row, "error", err)
		hangUp(w)
		h.refuse(w, err)
		return
	}
	send(w, http.StatusOK, imports.JobOf(i))
}

// parameters of POST /v1/imports.
var parameters = []string{"source", "file", "format", "delimiter", "types", "empty", "name"}

// fileOf parses query and headers; kind tells that the content type is wrong.
func fileOf(r *http.Request) (f imports.File, kind bool, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return f, false, errors.New("the query is not readable")
	}
	for name, values := range q {
		if !slices.Contains(parameters, name) || len(values) > 1 {
			return f, false, fmt.Errorf("the query may have each of %s once", strings.Join(parameters, ", "))
		}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return f, true, errors.New("send the file without Content-Encoding")
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if c := params["charset"]; err != nil || c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "us-ascii") {
		return f, true, errors.New("the content type must be application/x-ndjson or text/csv, in UTF-8")
	}
	switch media {
	case "application/x-ndjson", "application/jsonl", "application/x-jsonlines":
		f.Format = imports.JSONL
	case "text/csv":
		f.Format = imports.CSV
	case "application/octet-stream":
		if f.Format, err = imports.ParseFormat(q.Get("format")); err != nil {
			return f, false, err
		}
	default:
		return f, true, errors.New("the content type must be application/x-ndjson or text/csv")
	}
	if given := q.Get("format"); given != "" && given != string(f.Format) {
		return f, false, errors.New("format and content type contradict each other")
	}
	f.Source, f.Name, f.Options.Delimiter = q.Get("source"), q.Get("name"), q.Get("delimiter")
	f.Content = q.Get("file")
	if f.Source == "" {
		return f, false, errors.New("the query must name the source")
	}
	if len(f.Name) > maxName {
		return f, false, fmt.Errorf("the name is longer than %d bytes", maxName)
	}
	if f.Options.Types, err = imports.ParseTypes(q.Get("types")); err != nil {
		return f, false, err
	}
	switch q.Get("empty") {
	case "", "text":
	case "null":
		f.Options.EmptyNull = true
	default:
		return f, false, errors.New("empty must be text or null")
	}
	return f, false, f.Check()
}

// refuse answers a file that was not imported to its end.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	var bad *imports.BadFile
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &bad):
		problem.Write(w, problem.Problem{
			Type: problem.Kind("bad-file"), Title: "The file is refused", Status: http.StatusUnprocessableEntity, Detail: bad.Reason,
		})
	case errors.Is(err, imports.ErrTooLarge), errors.As(err, &large):
		problem.Write(w, problem.Problem{
			Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the file is larger than %d bytes", h.opt.MaxFile),
		})
	case errors.Is(err, imports.ErrEnding):
		api.Unavailable(w, time.Second, "the process is ending; post the same file again to continue")
	case errors.Is(err, imports.ErrRead) && errors.Is(err, os.ErrDeadlineExceeded):
		problem.Write(w, problem.Problem{Status: http.StatusRequestTimeout, Detail: "the file did not keep coming"})
	case errors.Is(err, imports.ErrRead):
		problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: "the file broke off"})
	case errors.Is(err, store.ErrTooMany):
		api.RetryAfter(w, time.Minute)
		problem.Write(w, problem.Problem{
			Status: http.StatusTooManyRequests,
			Detail: fmt.Sprintf("the tenant has %d incomplete imports, which is the limit; complete one, or cancel one", h.opt.MaxOpen),
		})
	case errors.Is(err, imports.ErrCancelled), errors.Is(err, imports.ErrTakenOver):
		problem.Write(w, problem.Problem{Status: http.StatusConflict, Detail: err.Error()})
	default:
		api.Unavailable(w, time.Second, "the file was not imported to its end; post the same file again to continue")
	}
}

// unavailable answers a request that store or inbox failed.
func (h *Handler) unavailable(w http.ResponseWriter, event string, err error) {
	if !errors.Is(err, context.Canceled) { // by the caller
		h.opt.Logger.Warn("request about an import failed", "event", event, "error", err)
	}
	api.Unavailable(w, time.Second, "the store does not answer; send the request again")
}

// hangUp ends the connection when the body was not read to its end.
func hangUp(w http.ResponseWriter) { w.Header().Set("Connection", "close") }

// list answers GET /v1/imports.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	const most = 100
	q := r.URL.Query()
	limit, before := most, q.Get("before")
	var err error
	if q.Has("limit") {
		if limit, err = strconv.Atoi(q.Get("limit")); err != nil || limit < 1 || limit > most {
			problem.Write(w, problem.Problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("limit must be 1 to %d", most)})
			return
		}
	}
	if q.Has("before") && !imports.ValidID(before) {
		problem.Write(w, problem.Problem{Status: http.StatusUnprocessableEntity, Detail: "before must be the id of an import"})
		return
	}
	page, err := h.opt.Store.ListImports(r.Context(), who.Tenant, before, limit)
	if err != nil {
		h.unavailable(w, "api.imports_unreadable", err)
		return
	}
	answer := struct {
		Imports []imports.Job `json:"imports"`
		Next    string        `json:"next,omitempty"` // the value of before for the next page
	}{Imports: []imports.Job{}}
	for _, i := range page {
		if who.May(auth.Import, i.Source) {
			answer.Imports = append(answer.Imports, imports.JobOf(i))
		}
	}
	if len(page) == limit {
		answer.Next = page[len(page)-1].ID
	}
	send(w, http.StatusOK, answer)
}

// findImport returns the import that a request names, or answers the request.
func (h *Handler) findImport(w http.ResponseWriter, r *http.Request, who auth.Principal) (i store.Import, ok bool) {
	err := store.ErrNotFound
	if id := r.PathValue("id"); imports.ValidID(id) {
		i, err = h.opt.Store.Import(r.Context(), who.Tenant, id)
	}
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !who.May(auth.Import, i.Source):
		api.NotFound(w, "there is no such import")
		return i, false
	case err != nil:
		h.unavailable(w, "api.imports_unreadable", err)
		return i, false
	}
	return i, true
}

// show answers GET /v1/imports/{id}.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	if i, ok := h.findImport(w, r, who); ok {
		send(w, http.StatusOK, imports.JobOf(i))
	}
}

// errors answers GET /v1/imports/{id}/errors with a file.
func (h *Handler) errors(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	format := imports.JSONL
	if text := r.URL.Query().Get("format"); text != "" {
		var err error
		if format, err = imports.ParseFormat(text); err != nil {
			problem.Write(w, problem.Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()})
			return
		}
	}
	i, ok := h.findImport(w, r, who)
	if !ok {
		return
	}
	kind := "application/x-ndjson"
	if format == imports.CSV {
		kind = "text/csv; charset=utf-8; header=present"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="import-%s-errors.%s"`, i.ID, format))
	if err := imports.WriteErrors(r.Context(), h.opt.Store, who.Tenant, i.ID, format, w); err != nil {
		if r.Context().Err() == nil {
			h.opt.Logger.Warn("sending results of an import failed", "event", "api.import_results_failed", "import", i.ID, "error", err)
		}
		panic(http.ErrAbortHandler) // half a file must not look like one
	}
}

// cancel answers POST /v1/imports/{id}/cancel.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	i, ok := h.findImport(w, r, who)
	if !ok {
		return
	}
	i, err := h.opt.Store.CancelImport(r.Context(), who.Tenant, i.ID)
	if err != nil {
		h.unavailable(w, "api.import_not_cancelled", err)
		return
	}
	h.opt.Logger.Info("import cancelled", "event", "api.import_cancelled", "import", i.ID, "source", i.Source, "state", i.State, "token", who.ID)
	send(w, http.StatusOK, imports.JobOf(i))
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // to a caller that may have disconnected
}
