package sources

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ServeHTTP takes a request.
func (p *Push) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem(w, http.StatusMethodNotAllowed, "events are posted")
		return
	}
	if !Authorized(r, p.opt.Token) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		problem(w, http.StatusUnauthorized, "a bearer token is needed")
		return
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || (kind != "application/json" && kind != "application/x-ndjson") {
		problem(w, http.StatusUnsupportedMediaType, "send application/json (one event) or application/x-ndjson (one per line)")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.opt.Timeout)
	defer cancel()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.opt.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		problem(w, http.StatusRequestEntityTooLarge, "the request is larger than the limit")
		return
	case err != nil:
		problem(w, http.StatusBadRequest, "the request's body could not be read")
		return
	}
	events := [][]byte{body}
	if kind == "application/x-ndjson" {
		events = lines(body)
	}
	if len(events) == 0 || len(body) == 0 {
		problem(w, http.StatusBadRequest, "the request has no event")
		return
	}
	headers := message.Metadata{}
	for _, name := range p.opt.Headers {
		if value := r.Header.Get(name); value != "" {
			headers.Set(name, value)
		}
	}
	msgs := make([]*message.Message, len(events))
	for i, e := range events {
		msgs[i] = message.NewMessage("", e)
		msgs[i].Metadata = headers
		msgs[i].SetContext(ctx)
	}
	for _, err := range p.Push(ctx, msgs...) {
		if err != nil {
			problem(w, http.StatusServiceUnavailable, err.Error()+"; send the events again")
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(map[string]int{"accepted": len(events)})
}

func lines(body []byte) [][]byte {
	var all [][]byte
	s := bufio.NewScanner(bytes.NewReader(body))
	s.Buffer(make([]byte, 0, 64<<10), len(body)+1)
	for s.Scan() {
		if line := s.Bytes(); !blank(line) {
			all = append(all, append([]byte(nil), line...))
		}
	}
	return all
}

// Authorized tells whether a request carries the bearer token; an empty token
// lets every request in. The comparison takes the same time whatever differs.
func Authorized(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}

// problem answers by RFC 9457.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}
