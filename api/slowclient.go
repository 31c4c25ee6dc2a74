package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// leastRate is the bytes per second of an answer once patience is used up.
const leastRate = 16 << 10

// pace is how much longer a client may keep its side waiting. Waiting uses it
// up, bytes earn it back, but never more than there was at first: who was fast
// may not be slow for that.
type pace struct{ most, left time.Duration }

// timeEarned is what n bytes earn.
func timeEarned(n int) time.Duration { return time.Duration(n) * time.Second / leastRate }

// passed notes that n bytes took until now, since began.
func (p *pace) passed(began time.Time, n int) {
	p.left = min(p.most, p.left-time.Since(began)+timeEarned(n))
}

// pieceOfAnswer is the most of an answer that is written at once: a client that reads
// nothing is noticed after patience, however long the answer is.
const pieceOfAnswer = 64 << 10

// lastPatience is the patience of a listener that is about to end.
const lastPatience = time.Second

// pacedAnswer extends the connection's deadline as the client reads: one
// that does not read its answer loses the connection. Between writes there is no
// deadline, so an answer may take as long as its handler does.
type pacedAnswer struct {
	http.ResponseWriter
	control *http.ResponseController

	body  *trackedBody
	begun bool // the header is written

	mu    sync.Mutex
	pace  pace      // guarded by mu
	began time.Time // of the write under way, else zero; guarded by mu
}

// paced serves h to clients that have patience for each answer, and hardly any
// once ending has ended.
func paced(ending context.Context, patience time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &pacedAnswer{ResponseWriter: w, control: http.NewResponseController(w), pace: pace{patience, patience}}
		a.body = &trackedBody{ReadCloser: r.Body}
		a.body.ended.Store(r.ContentLength == 0)
		r.Body = a.body
		hurried := make(chan struct{})
		calm := context.AfterFunc(ending, func() { defer close(hurried); a.hurry() })
		defer func() {
			if !calm() {
				<-hurried // w may not be used after the request
			}
			a.header()
			if !a.body.ended.Load() {
				_ = a.control.SetReadDeadline(time.Now()) // net/http reads up to 256 KiB of the rest
			}
			a.begin(0) // net/http writes what it has left of the answer
		}()
		h.ServeHTTP(a, r)
	})
}

// begin notes that a write of n bytes begins.
func (a *pacedAnswer) begin(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = time.Now()
	// Where deadlines cannot be set the answer goes to no connection.
	_ = a.control.SetWriteDeadline(a.began.Add(a.pace.left + timeEarned(n)))
}

// end notes that n bytes of it are written.
func (a *pacedAnswer) end(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pace.passed(a.began, n)
	a.began = time.Time{}
	_ = a.control.SetWriteDeadline(time.Time{})
}

// hurry leaves the client hardly any patience.
func (a *pacedAnswer) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pace = pace{lastPatience, lastPatience}
	if !a.began.IsZero() {
		_ = a.control.SetWriteDeadline(time.Now().Add(lastPatience))
	}
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
		a.begin(len(piece))
		written, err := a.ResponseWriter.Write(piece)
		a.end(written)
		if n += written; err != nil || n == len(b) {
			return n, err
		}
	}
}

// FlushError is for http.ResponseController.
func (a *pacedAnswer) FlushError() error {
	a.header()
	a.begin(0)
	defer a.end(0)
	return a.control.Flush()
}

// Unwrap is for http.ResponseController.
func (a *pacedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
