package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// Options of a Client. Zero fields but URL have defaults.
type Options struct {
	// URL of the API: scheme and host, such as https://weir.example:9601. A path
	// goes before the API's own.
	URL string
	// Token is sent as a bearer token. None is sent when it is empty.
	Token string
	// Insecure allows http:// to another machine, where anyone on the path can
	// read the token and change the answers.
	Insecure bool
	// HTTP sends requests. Defaults to a client with 30 seconds per attempt.
	// Redirects are never followed.
	HTTP *http.Client
	// Attempts for one call. Defaults to 8.
	Attempts int
	// MinBackoff is the wait after the first failure, on the average. It doubles from there up to
	// MaxBackoff. Default to 100 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// MaxRetryAfter bounds the wait that a server asks for with Retry-After.
	// Defaults to 1 minute.
	MaxRetryAfter time.Duration
}

// Client talks to one Weir. It may be used concurrently.
type Client struct {
	base      *url.URL
	http      http.Client
	options   Options             // without the token
	authorize func(*http.Request) // not a field: it must not be printed
}

const (
	attemptTime = 30 * time.Second
	maxAnswer   = 64 << 20 // bytes
)

// New checks the options. It sends nothing.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("client: the URL is not http:// or https:// with a host, without user and query")
	}
	if ip, err := netip.ParseAddr(base.Hostname()); base.Scheme == "http" && !o.Insecure && base.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, errors.New("client: http:// to another machine can be read by others: want https://, or Insecure")
	}
	c := &Client{base: base, http: http.Client{Timeout: attemptTime}, authorize: func(*http.Request) {}}
	if o.HTTP != nil {
		c.http = *o.HTTP
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if token := o.Token; token != "" {
		c.authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	o.Token = ""
	o.Attempts = defaults.Positive(o.Attempts, 8)
	o.MinBackoff = defaults.Positive(o.MinBackoff, 100*time.Millisecond)
	o.MaxBackoff = defaults.Positive(o.MaxBackoff, 5*time.Second)
	o.MaxRetryAfter = defaults.Positive(o.MaxRetryAfter, time.Minute)
	c.options = o
	return c, nil
}

// Error is an answer that is no success: a problem by RFC 9457 where the server
// sent one.
type Error struct {
	Status    int    `json:"status"` // of HTTP
	Type      string `json:"type"`   // URI, "about:blank" when the status says all
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"-"` // what the server's log calls the request
}

// ErrUnknownVersion is an Error for a version that was never given, as far as
// the server knows. Compare with errors.Is.
var ErrUnknownVersion = errors.New("that version was never given")

// Error returns status, title and detail.
func (e *Error) Error() string {
	text := fmt.Sprintf("weir: %d %s", e.Status, e.Title)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Is reports whether e matches target, an error of this package, for errors.Is.
func (e *Error) Is(target error) bool {
	return target == ErrUnknownVersion && e.Type == "urn:weir:problem:unknown-version"
}

// Temporary reports whether the same request may succeed later: 429 and 503.
func (e *Error) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable
}

// post sends a request until it succeeds or nothing more is to be hoped for.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("client: the request has no JSON form: %w", err)
	}
	backoff := c.options.MinBackoff
	for attempt := 1; ; attempt++ {
		pause, err := c.try(ctx, path, body, out)
		var answered *Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &answered) && !answered.Temporary(), attempt >= c.options.Attempts:
			return err
		case answered == nil && ctx.Err() != nil: // the error says so itself
			return err
		}
		// Between half and one and a half, so that many clients do not come together.
		pause = max(pause, time.Duration(float64(backoff)*(0.5+rand.Float64()))) // #nosec G404 -- a pause is no secret
		backoff = min(2*backoff, c.options.MaxBackoff)
		if !wait.Sleep(ctx, pause) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// try sends it once. wait is the server's Retry-After.
func (c *Client) try(ctx context.Context, path string, body []byte, out any) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path).String(), bytes.NewReader(body)) // #nosec G125 -- the service in it is escaped
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	c.authorize(r)
	response, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("client: the answer broke off: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, out); err != nil {
			return 0, fmt.Errorf("client: malformed answer: %w", err)
		}
		return 0, nil
	}
	// A number that is too large becomes the largest, to which the cap applies.
	if asked, _ := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31); asked > 0 {
		wait = min(time.Duration(asked)*time.Second, c.options.MaxRetryAfter)
	}
	failure := &Error{}
	if json.Unmarshal(text, failure) != nil { // something in between answered
		*failure = Error{}
	}
	failure.Status, failure.RequestID = response.StatusCode, response.Header.Get("Request-Id")
	if failure.Title == "" {
		failure.Title = http.StatusText(response.StatusCode)
	}
	return wait, failure
}
