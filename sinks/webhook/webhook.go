package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/net/http/httpguts"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/sinks/internal/fanout"
)

const (
	defaultTimeout     = 15 * time.Second
	defaultConcurrency = 8
	// fewestConnections bounds the connections, and the requests at a time, of all sinks that share
	// them, unless one sink may have more requests at a time.
	fewestConnections = 32

	// maxRetryAfter caps a receiver's Retry-After.
	maxRetryAfter = 5 * time.Minute
	// changesPerLane makes batches large enough to keep all requests busy and
	// small enough that a Write ends soon.
	changesPerLane = 8
	maxBytes       = 16 << 20
	maxAnswer      = 64 << 10
	// maxSaid is how much of an answer is searched for the receiver's reason.
	maxSaid   = 4 << 10
	userAgent = "weir-webhook/1"
)

// Options configure a sink as Config does, which checks them. URL is required.
type Options struct {
	URL     string   // user information in it is sent as basic authentication
	Secrets []string // base64, with or without the prefix whsec_
	Headers map[string]string
	Timeout time.Duration // defaults to 15 s
	// Concurrency is the most requests at a time. Defaults to 8, and is 1 with BatchMax.
	Concurrency int
	// BatchMax is how many changes one request holds, as an array. Defaults to 0: each
	// change is a request of its own.
	BatchMax    int
	Linger      time.Duration
	DenyPrivate bool

	// TLS is cloned for the connections. Defaults to the system's authorities.
	TLS *tls.Config
	// TLSIdentity tells TLS from every other one, by content. Defaults to its address.
	TLSIdentity string

	// Service names whose sink it is, among those that share a client.
	Service string
	// Targets hold the clients of this process: sinks in one of them share
	// connections if host, user, headers, DenyPrivate, TLS and the bound on connections are the
	// same. Defaults to connections of its own.
	Targets *sinks.Targets
}

// connections is the bound on the connections that sinks share.
func (o *Options) connections() int { return max(fewestConnections, o.Concurrency) }

// Sink posts changes. It implements sinks.Sink.
type Sink struct {
	opts    Options
	url     *url.URL
	headers http.Header
	signers []*standardwebhooks.Webhook
	server  *sinks.Lease[*http.Transport]
	now     func() time.Time
	most    int // changes of one array: how many the receiver takes
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the options. Its errors name the option and hold no secret.
func New(opts Options) (*Sink, error) {
	s := &Sink{opts: opts, headers: http.Header{}, now: time.Now, most: opts.BatchMax}
	s.setDefaults()
	u, err := url.Parse(opts.URL)
	if err != nil {
		return nil, errors.New("url: must be a valid http or https URL") // the parser's error quotes it
	}
	s.url = u
	for name, value := range opts.Headers {
		s.headers.Set(name, value)
	}
	for i, secret := range opts.Secrets {
		signer, err := newSigner(secret)
		if err != nil {
			return nil, fmt.Errorf("secrets[%d]: %w", i, err)
		}
		s.signers = append(s.signers, signer)
	}
	s.server = sinks.Share(s.opts.Targets, sinks.ClientConfig[*http.Transport]{
		Key:         clientKey(s.opts, s.url, s.headers),
		Connections: s.opts.connections(), Tenant: s.opts.Service,
		Open:  func() (*http.Transport, error) { return newTransport(s.opts), nil },
		Close: func(t *http.Transport) error { t.CloseIdleConnections(); return nil },
	})
	return s, nil
}

func (s *Sink) setDefaults() {
	o := &s.opts
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.BatchMax > 0 {
		o.Concurrency = 1
	}
	o.Concurrency = cmp.Or(o.Concurrency, defaultConcurrency)
}

// headerFault returns the fault of a header's name beside the others, and the wanted form. Both
// are empty for none.
func headerFault(name string, others http.Header) (fault, want string) {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return "is not the name of a header", "letters, digits and -"
	case isOwn(canonical):
		return "is set by the sink itself", "another header"
	case others[canonical] != nil:
		return "is there in another spelling", "each header once"
	}
	return "", ""
}

// isOwn reports whether the sink, or the client below it, sets a header.
func isOwn(canonical string) bool {
	switch canonical {
	case "Idempotency-Key", "Content-Type", "Content-Length", "Host", "Trailer", "Transfer-Encoding":
		return true
	}
	return strings.HasPrefix(canonical, "Webhook-")
}

// prefix begins secrets in the form of Standard Webhooks.
const prefix = "whsec_"

var errNotBase64 = errors.New("must be base64 behind " + prefix) // the cause would quote a part of it

// signingKey returns the bytes of a secret: base64, padded or not, with or without the prefix,
// and with white space around it.
func signingKey(secret string) ([]byte, error) {
	text := strings.TrimRight(strings.TrimPrefix(strings.TrimSpace(secret), prefix), "=")
	key, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errNotBase64
	}
	return key, nil
}

func newSigner(secret string) (*standardwebhooks.Webhook, error) {
	key, err := signingKey(secret)
	if err != nil {
		return nil, err
	}
	if len(key) == 0 {
		return nil, errors.New("is empty")
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// Open does nothing and always succeeds.
func (s *Sink) Open(context.Context) error { return nil }

// Traits implements sinks.Sink.
func (s *Sink) Traits() sinks.Traits {
	if s.opts.BatchMax > 0 {
		return sinks.Traits{Kind: sinks.State, MaxBatch: s.opts.BatchMax, MaxBytes: maxBody, Linger: s.opts.Linger}
	}
	return sinks.Traits{Kind: sinks.State, MaxBatch: s.opts.Concurrency * changesPerLane, MaxBytes: maxBytes}
}

// Close returns the service's share in the connections. The last sink of a
// target closes those that are idle.
func (s *Sink) Close() error { return s.server.Close() }

// Write posts the changes and returns when all are answered, or soon after ctx
// is cancelled.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	write := s.writeEach
	if s.opts.BatchMax > 0 {
		write = s.writeArrays
	}
	return s.server.Try(ctx, len(changes), func() error { return write(ctx, client, changes) })
}

// client returns a client over the target's connections that follows no redirect.
func (s *Sink) client() (*http.Client, error) {
	transport, err := s.server.Client()
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, err
}

// probe sends a request without a body. It returns why changes would not be taken, as far
// as the answer shows it: many receivers take no other method than POST.
func (s *Sink) probe(ctx context.Context, method string) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	a := s.post(ctx, client, message{method: method, id: "probe", keep: maxSaid, docs: func() []byte { return nil }})
	switch {
	case a.err == nil, a.err.Class == sinks.Reject, a.receipt.Answer.Status == http.StatusMethodNotAllowed, a.receipt.Answer.Status == http.StatusNotImplemented:
		return nil
	}
	a.err.Op = "probe"
	return a.err
}

// writeEach posts each change alone.
func (s *Sink) writeEach(ctx context.Context, client *http.Client, changes []change.Change) error {
	p := &progress{patience: max(2, s.opts.Concurrency)}
	receipts := sinks.ReceiptsOf(ctx)
	failed := fanout.Each(ctx, changes, s.opts.Concurrency, func(ctx context.Context, i int) (*sinks.Error, bool) {
		c := &changes[i]
		a := s.post(ctx, client, message{
			id: c.Key, body: c.AppendRecord(make([]byte, 0, len(c.Doc)+len(c.Entity)+len(c.Service)+128)),
			trace: c.Trace, keep: maxAnswer, docs: func() []byte { return c.Doc },
		})
		if a.err == nil {
			a.failure = a.ofChange(batch.Row{Index: i, Change: c})
		}
		if receipts != nil {
			receipts[i] = a.receipt
		}
		halt := p.note(i, a.failure)
		return a.err, halt
	})
	if p.answered {
		for _, i := range p.doubtful {
			failed[i].Class = sinks.RetryBounded
		}
	}
	return fanout.Result(failed, len(changes))
}

// failure is the outcome of one attempt; err nil is success.
type failure struct {
	err  *sinks.Error
	halt bool // about the endpoint, not the change
	// doubt marks a failure that is an outage, or one document on which the receiver fails. It is
	// an outage if no other change succeeds.
	doubt bool
}

// progress is the evidence of one Write about the receiver.
type progress struct {
	mu       sync.Mutex
	answered bool  // some change had 2xx
	doubtful []int // failures in doubt
	patience int   // doubtful failures without any success before the rest is spared
}

// note records an outcome and reports whether to start no more requests.
func (p *progress) note(i int, f failure) (halt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case f.err == nil:
		p.answered = true
	case f.doubt:
		p.doubtful = append(p.doubtful, i)
		return !p.answered && len(p.doubtful) >= p.patience
	}
	return f.halt
}

// errTimeout is the cause of an attempt's own deadline.
var errTimeout = errors.New("no answer in time")

// message is the content of a request.
type message struct {
	method string
	id     string
	body   []byte
	trace  *change.Trace
	keep   int           // bytes of the answer
	docs   func() []byte // JSON of which no error repeats a word
}

// answer is the outcome of an attempt.
type answer struct {
	failure
	receipt sinks.Receipt // At is zero if none was made
	body    []byte        // as far as it was kept
	cut     bool          // the body is longer than that
	broken  bool          // the body did not arrive completely
	wait    time.Duration // as the receiver asked
	mask    func(text string) string
}

// post makes one attempt, as soon as the target has a connection for it.
func (s *Sink) post(ctx context.Context, client *http.Client, m message) answer {
	release, err := s.server.Hold(ctx)
	if err != nil {
		return answer{failure: failure{err: sinks.Classify(err), halt: true}}
	}
	a := s.send(ctx, client, m)
	if a.err == nil {
		release(nil)
	} else {
		release(a.err)
	}
	return a
}

func (s *Sink) send(ctx context.Context, client *http.Client, m message) (a answer) {
	attempt, cancel := context.WithTimeoutCause(ctx, s.opts.Timeout, errTimeout)
	defer cancel()
	var sent, began atomic.Bool
	attempt = httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) }, GotFirstResponseByte: func() { began.Store(true) },
	})
	req, err := s.request(attempt, m)
	if err != nil {
		a.failure = failure{err: &sinks.Error{Class: sinks.Pause, Op: "sign", Err: err}, halt: true}
		return a
	}
	a.receipt.At = time.Now()
	defer func() { a.receipt.Took = time.Since(a.receipt.At) }()
	resp, err := client.Do(req)
	if err != nil {
		a.failure = connectionFailure(err, sent.Load(), began.Load())
		if ctx.Err() != nil {
			a.failure = failure{err: &sinks.Error{Class: sinks.Retry, Ambiguous: sent.Load(), Op: "post", Err: context.Cause(ctx)}}
		}
		return a
	}
	defer resp.Body.Close()
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(m.keep)+1))
	a.cut = len(a.body) > m.keep
	a.body = a.body[:min(len(a.body), m.keep)]
	a.receipt.Answer = sinks.Answer{Status: resp.StatusCode, Body: bytes.Clone(a.body[:min(len(a.body), sinks.MaxAnswer)])}
	// Read to its end, an answer leaves the connection free for the next request.
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	a.broken = err != nil
	a.wait = retryAfter(resp.Header.Values("Retry-After"), s.now())
	a.mask = func(text string) string { return reason.Mask(text, m.docs(), s.secrets(req)...) }
	words := ""
	if resp.StatusCode >= 300 {
		words = a.mask(said(a.body))
	}
	a.failure = statusFailure(resp.StatusCode, a.wait, words)
	return a
}

// secrets are the texts of a request that no error may repeat.
func (s *Sink) secrets(req *http.Request) []string {
	secrets := append(slices.Clone(s.opts.Secrets), s.url.RequestURI(), s.url.Path, s.url.RawQuery)
	if user := s.url.User; user != nil {
		password, _ := user.Password()
		secrets = append(secrets, user.Username(), password)
	}
	for name := range s.headers {
		secrets = append(secrets, s.headers.Get(name))
	}
	return append(secrets, req.Header.Get(standardwebhooks.HeaderWebhookSignature))
}

// request builds and signs one attempt.
func (s *Sink) request(ctx context.Context, m message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, cmp.Or(m.method, http.MethodPost), "", bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	u := *s.url
	req.URL, req.Host = &u, u.Host
	req.Header = s.headers.Clone()
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", userAgent)
	}
	if t := m.trace; t != nil {
		// Not signed: it is about this attempt, and proxies may change it.
		req.Header.Set(change.TraceParentHeader, t.Parent)
		if t.State != "" {
			req.Header.Set(change.TraceStateHeader, t.State)
		}
	}
	now := s.now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", m.id)
	req.Header.Set(standardwebhooks.HeaderWebhookID, m.id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	signatures := make([]string, len(s.signers))
	for i, signer := range s.signers {
		if signatures[i], err = signer.Sign(m.id, now, m.body); err != nil {
			return nil, err
		}
	}
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return req, nil
}
