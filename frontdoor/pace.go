package frontdoor

import (
	"io"
	"net/http"
	"time"
)

// An answer, and an upload, has patience and then a second per leastRate bytes.
const (
	patience  = time.Minute
	leastRate = 16 << 10
)

// pace gives the time by which n bytes must have passed since began.
func pace(began time.Time, n int64) time.Time {
	return began.Add(patience + time.Duration(n/leastRate)*time.Second)
}

// paced is a body whose connection's deadline moves on with what arrives.
type paced struct {
	io.ReadCloser
	control *http.ResponseController
	began   time.Time
	read    int64
}

func longBody(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	return &paced{ReadCloser: body, control: http.NewResponseController(w), began: time.Now()}
}

func (p *paced) Read(b []byte) (int, error) {
	// Where deadlines cannot be set the server's own holds.
	_ = p.control.SetReadDeadline(pace(p.began, p.read))
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	return n, err
}

// answer remembers the status, and moves the connection's deadline on with what
// the client takes: one that does not read its answer does not keep it.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	began   time.Time
	written int64
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.began.IsZero() {
		a.began = time.Now()
	}
	_ = a.control.SetWriteDeadline(pace(a.began, a.written+int64(len(b))))
	n, err := a.ResponseWriter.Write(b)
	a.written += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
