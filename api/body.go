package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/api/problem"
)

type requestKey struct{}

// request is the server's state of one request.
type request struct {
	server *Server
	id     string
	route  string
	share  *share // nil before it is let in
	held   int64  // bytes that it has of the budget
	turn   func() // returns its turn; nil without one
	seen   bodyStats
}

func requestOf(r *http.Request) *request {
	q, _ := r.Context().Value(requestKey{}).(*request)
	return q
}

// Work returns the context for a request's effect. It does not end when the
// client hangs up, but after the configured time, or when the process has no more.
// A request's values go along.
func Work(r *http.Request) (context.Context, context.CancelFunc) {
	o := requestOf(r).server.opt
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), o.Timeout)
	stop := context.AfterFunc(o.Limit, cancel)
	return ctx, func() { stop(); cancel() }
}

// drainPatience is how long a refused body may take to end.
const drainPatience = 5 * time.Second

// firstPiece is the first piece of a body in memory; it doubles as the body arrives.
const firstPiece = 16 << 10

// ReadBody reads the body of a request that a Server gave to a Handler, of at
// most limit bytes (0: the server's) and rows rows, or answers why not: 408, 413,
// 415 (a Content-Encoding), 503 when there is no room for it in memory within the
// time that a request has, or no turn (see turns), 400. What counts against the budgets, until the handler
// returns, are its bytes, and the values and rows that it has as JSON: a body of
// single digits becomes many times its size. To be called once.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, rows Rows) (body []byte, ok bool) {
	q := requestOf(r)
	deadline := time.Now().Add(q.server.opt.Timeout)
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	if body, ok = q.read(ctx, w, r, limit); !ok {
		return nil, false
	}
	// The request is whole: from here on its client may hang up, see Work.
	whole, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), deadline)
	defer cancel()
	values, room := rows.room(body)
	if most := q.server.opt.mostValues(); values > most {
		problem.Write(w, problem.Problem{
			Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body has more than %d values; send it in parts", most),
		})
		return nil, false
	}
	if !q.acquire(whole, room) {
		Unavailable(w, time.Second, "too many requests are in hand")
		return nil, false
	}
	if q.turn = q.server.turns.wait(whole, q.seen.who.Tenant); q.turn == nil {
		Unavailable(w, time.Second, "too many requests of this tenant are in hand")
		return nil, false
	}
	return body, true
}

// endTurn returns the request's turn.
func (q *request) endTurn() {
	if q.turn != nil {
		q.turn()
	}
}

// read reads the body.
func (q *request) read(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (body []byte, ok bool) {
	if limit <= 0 || limit > q.server.opt.MaxBody {
		limit = q.server.opt.MaxBody
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		w.Header().Set("Accept-Encoding", "identity")
		problem.Write(w, problem.Problem{Status: http.StatusUnsupportedMediaType, Detail: "send the body without Content-Encoding"})
		return nil, false
	}
	if r.ContentLength > limit {
		answerTooLarge(w)
		return nil, false
	}
	most := limit + 1 // one byte more, to notice a body that is too long
	if r.ContentLength >= 0 {
		most = r.ContentLength + 1 // to see its end
	}
	for size := min(firstPiece, most); ; size = min(2*size, most) {
		reserve := size
		if size > asAnnounced {
			reserve = most
		}
		if !q.acquire(ctx, bodyCost*reserve-q.held) {
			// A connection that closes with unread bytes loses the answer.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainPatience))
			_, _ = io.Copy(io.Discard, r.Body)
			Unavailable(w, time.Second, "too many requests are in hand")
			return nil, false
		}
		body = append(make([]byte, 0, size), body...)
		for len(body) < cap(body) {
			n, err := r.Body.Read(body[len(body):cap(body)])
			body = body[:len(body)+n]
			switch {
			case int64(len(body)) > limit:
				answerTooLarge(w)
				return nil, false
			case errors.Is(err, io.EOF):
				q.release(bodyCost * int64(cap(body)))
				return body, true
			case err != nil:
				answerUnreadable(w, err)
				return nil, false
			}
		}
	}
}

func answerUnreadable(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		answerTooLarge(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		problem.Write(w, problem.Problem{Status: http.StatusRequestTimeout, Detail: "the body did not arrive in time"})
	default:
		problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: "the body could not be read"})
	}
}
