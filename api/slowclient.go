package api

import (
	"io"
	"net/http"
	"time"
)

// leastRate is the bytes per second of an answer, and of an upload, once
// patience is used up.
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

// pacedBody is a body whose connection's deadline moves on with what arrives.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	pace    pace
}

func longBody(w http.ResponseWriter, body io.ReadCloser, patience time.Duration) io.ReadCloser {
	return &pacedBody{ReadCloser: body, control: http.NewResponseController(w), pace: pace{patience, patience}}
}

func (p *pacedBody) Read(b []byte) (int, error) {
	began := time.Now()
	// Where deadlines cannot be set the server's own holds.
	_ = p.control.SetReadDeadline(began.Add(p.pace.left))
	n, err := p.ReadCloser.Read(b)
	p.pace.passed(began, n)
	return n, err
}

// statusRecorder remembers the status, and moves the connection's deadline on with what
// the client takes: one that does not read its answer loses the connection.
type statusRecorder struct {
	http.ResponseWriter
	control *http.ResponseController
	pace    pace
	status  int
	sent    int64 // bytes of the body
}

// statusSent is the status that the caller got.
func (a *statusRecorder) statusSent() int {
	if a.status == 0 {
		return http.StatusOK // as net/http answers for a handler that says nothing
	}
	return a.status
}

func (a *statusRecorder) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(a.pace.left))
	a.ResponseWriter.WriteHeader(status)
}

func (a *statusRecorder) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	began := time.Now()
	_ = a.control.SetWriteDeadline(began.Add(a.pace.left + timeEarned(len(b))))
	n, err := a.ResponseWriter.Write(b)
	a.sent += int64(n)
	a.pace.passed(began, n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (a *statusRecorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }
