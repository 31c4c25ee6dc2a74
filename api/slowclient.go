package api

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// pieceOfAnswer is the most of an answer that is written at once, within one deadline: a client
// that reads too slowly is noticed, however long the answer is.
const pieceOfAnswer = 64 << 10

// pacedAnswer sets a deadline for each piece of an answer. Between writes there is none, so an
// answer may take as long as its handler does.
type pacedAnswer struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration // for a piece

	body  *trackedBody
	begun bool // the header is written

	mu   sync.Mutex
	last time.Time // guarded by mu; the deadline of all pieces; zero: there is none
}

// paced serves h to clients that have patience for each piece of an answer.
func paced(patience time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &pacedAnswer{ResponseWriter: w, control: http.NewResponseController(w), patience: patience}
		a.body = &trackedBody{ReadCloser: r.Body}
		a.body.ended.Store(r.ContentLength == 0)
		r.Body = a.body
		defer func() {
			a.header()
			if !a.body.ended.Load() {
				_ = a.control.SetReadDeadline(time.Now()) // net/http reads up to 256 KiB of the rest
			}
			a.begin() // net/http writes what it has left of the answer
		}()
		h.ServeHTTP(a, r)
	})
}

// begin sets the deadline of a piece. Where deadlines cannot be set the answer goes to no
// connection.
func (a *pacedAnswer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := time.Now().Add(a.patience)
	if !a.last.IsZero() && a.last.Before(until) {
		until = a.last
	}
	_ = a.control.SetWriteDeadline(until)
}

// end removes it.
func (a *pacedAnswer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.control.SetWriteDeadline(a.last)
}

// SetWriteDeadline is for http.ResponseController: the deadline of all pieces, also of one that is being written.
func (a *pacedAnswer) SetWriteDeadline(at time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = at
	return a.control.SetWriteDeadline(at)
}

// trackedBody is a request's body that knows whether it was read to its end.
type trackedBody struct {
	io.ReadCloser
	ended atomic.Bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// header closes the connection after an answer that precedes the end of its request's
// body. Otherwise net/http waits for the body before it sends the answer.
func (a *pacedAnswer) header() {
	if !a.begun && !a.body.ended.Load() {
		a.Header().Set("Connection", "close")
	}
	a.begun = true
}

// WriteHeader sends the status.
func (a *pacedAnswer) WriteHeader(status int) {
	if status >= 200 {
		a.header()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *pacedAnswer) Write(b []byte) (n int, err error) {
	a.header()
	for {
		piece := b[n:min(n+pieceOfAnswer, len(b))]
		a.begin()
		written, err := a.ResponseWriter.Write(piece)
		a.end()
		if n += written; err != nil || n == len(b) {
			return n, err
		}
	}
}

// FlushError is for http.ResponseController.
func (a *pacedAnswer) FlushError() error {
	a.header()
	a.begin()
	defer a.end()
	return a.control.Flush()
}

// Unwrap is for http.ResponseController.
func (a *pacedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
