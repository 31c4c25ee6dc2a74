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
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/transport"
	"golang.org/x/sync/semaphore"
)

// PushOptions of a Push source.
type PushOptions struct {
	Name string
	// Token that requests must carry as a bearer token; empty lets all in,
	// which the configuration allows on loopback only.
	Token string
	// Headers are the names of request headers that become metadata of every
	// event of the request, under the names given here.
	Headers []string
	// MaxBody bounds a request in bytes. Defaults to 16 MiB.
	MaxBody int64
	// Timeout is how long a request waits for its events to be durable; after
	// it the answer is 503 and the client sends them again. Defaults to 30s.
	Timeout time.Duration
	// WindowBytes bounds the events that are handed out and not acknowledged,
	// also those whose request has ended: while Weir is halted, clients send
	// again and again. Each event counts 4 KiB beside its own bytes, for what
	// goes with it; a larger one passes alone. Defaults to 64 MiB.
	WindowBytes int64
}

// eventOverhead is what an event in flight costs beside its bytes.
const eventOverhead = 4 << 10

// bodiesAtATime bounds the bodies of requests in memory, in largest bodies.
const bodiesAtATime = 16

// Push takes events from HTTP requests: a POST with one JSON event
// (application/json) or one per line (application/x-ndjson). 202 says that
// every event of the request is durable in the inbox, or a dead letter, or
// was known already. Push is an http.Handler and a Watermill subscriber.
type Push struct {
	opt   PushOptions
	ready chan struct{} // closed by Subscribe

	ctx        context.Context // of the source and of its messages
	stop       context.CancelFunc
	subscribed atomic.Bool
	inFlight   atomic.Int64
	out        chan *message.Message
	room       *semaphore.Weighted // bytes of events in flight
	bodies     *semaphore.Weighted // bytes of requests in hand

	mu  sync.Mutex // orders hand-out: numbers follow the channel
	seq uint64     // guarded by mu

	// life keeps wg from growing once Close waits for it.
	life   sync.Mutex
	closed bool // guarded by life
	wg     sync.WaitGroup
}

// NewPush makes a source. Requests wait until it is subscribed.
func NewPush(opt PushOptions) *Push {
	if opt.MaxBody <= 0 {
		opt.MaxBody = 16 << 20
	}
	if opt.Timeout <= 0 {
		opt.Timeout = 30 * time.Second
	}
	if opt.WindowBytes <= 0 {
		opt.WindowBytes = 64 << 20
	}
	p := &Push{
		opt: opt, ready: make(chan struct{}), out: make(chan *message.Message),
		room: semaphore.NewWeighted(opt.WindowBytes), bodies: semaphore.NewWeighted(bodiesAtATime * opt.MaxBody),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Drained tells whether no request is being worked on.
func (p *Push) Drained() bool { return p.inFlight.Load() == 0 }

// Subscribe may be called once; the end of ctx ends the source.
func (p *Push) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if p.subscribed.Swap(true) {
		return nil, errors.New("push source: subscribed already")
	}
	context.AfterFunc(ctx, p.stop)
	out := make(chan *message.Message)
	ok := p.start(func() {
		defer close(out)
		for {
			select {
			case m := <-p.out:
				select {
				case out <- m:
				case <-p.ctx.Done():
					return
				}
			case <-p.ctx.Done():
				return
			}
		}
	})
	if !ok {
		return nil, errStopping
	}
	close(p.ready)
	return out, nil
}

// start runs f unless the source is closed.
func (p *Push) start(f func()) bool {
	p.life.Lock()
	defer p.life.Unlock()
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// Close ends the subscription; requests are answered 503 from then on.
func (p *Push) Close() error {
	p.stop()
	p.life.Lock()
	p.closed = true
	p.life.Unlock()
	p.wg.Wait()
	return nil
}

// hand gives one event to the subscriber and returns a channel that is closed
// when it is acknowledged. It waits for room in the window until ctx, which is
// the request's, ends. The message lives as long as the source: a client that
// hangs up must not leave a gap in the numbers.
func (p *Push) hand(ctx context.Context, event []byte, headers message.Metadata) (_ <-chan struct{}, err error) {
	room := min(int64(len(event))+eventOverhead, p.opt.WindowBytes)
	if p.room.Acquire(ctx, room) != nil {
		return nil, errNoRoom
	}
	defer func() {
		if err != nil {
			p.room.Release(room)
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, errStopping
	}
	pos := transport.Position{Topic: "push:" + p.opt.Name, Time: time.Now().UTC(), Claim: 1, Seq: p.seq}
	m := p.message(event, headers, pos)
	select {
	case p.out <- m:
		p.seq++
	case <-p.ctx.Done():
		return nil, errStopping
	}
	done := make(chan struct{})
	p.inFlight.Add(1)
	started := p.start(func() {
		defer p.room.Release(room)
		defer p.inFlight.Add(-1)
		for {
			select {
			case <-m.Acked():
				close(done)
				return
			case <-m.Nacked():
				if !pause(p.ctx, 100*time.Millisecond) {
					return
				}
				m = p.message(event, headers, pos)
				select {
				case p.out <- m:
				case <-p.ctx.Done():
					return
				}
			case <-p.ctx.Done():
				return
			}
		}
	})
	if !started {
		p.inFlight.Add(-1)
		return nil, errStopping
	}
	return done, nil
}

var (
	errStopping = errors.New("the process is stopping")
	errNoRoom   = errors.New("too many events are in hand")
)

func (p *Push) message(event []byte, headers message.Metadata, pos transport.Position) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), event)
	for name, value := range headers {
		m.Metadata.Set(name, value)
	}
	m.SetContext(transport.WithPosition(p.ctx, pos))
	return m
}

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
	defer context.AfterFunc(p.ctx, cancel)()
	size := p.opt.MaxBody
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	if p.bodies.Acquire(ctx, size) != nil {
		problem(w, http.StatusServiceUnavailable, "too many requests are in hand; send the events again")
		return
	}
	defer p.bodies.Release(size)
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
	select {
	case <-p.ready:
	case <-ctx.Done():
		problem(w, http.StatusServiceUnavailable, "not started yet; send the events again")
		return
	}
	headers := message.Metadata{}
	for _, name := range p.opt.Headers {
		if value := r.Header.Get(name); value != "" {
			headers.Set(name, value)
		}
	}
	var waits []<-chan struct{}
	for _, e := range events {
		done, err := p.hand(ctx, e, headers)
		if err != nil {
			problem(w, http.StatusServiceUnavailable, err.Error()+"; send the events again")
			return
		}
		waits = append(waits, done)
	}
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
			problem(w, http.StatusServiceUnavailable, "the events are not durable yet; send them again")
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
