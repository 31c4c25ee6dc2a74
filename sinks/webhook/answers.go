package webhook

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/sinks"
)

// statusFailure says what an HTTP status means; the table is in the package's
// documentation.
func statusFailure(status int, wait time.Duration) failure {
	if status >= 200 && status < 300 {
		return failure{}
	}
	e := &sinks.Error{Op: "post", Err: fmt.Errorf("the receiver answered %d %s", status, http.StatusText(status))}
	f := failure{err: e}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusTooEarly:
		e.Class, e.RetryAfter, f.halt = sinks.Retry, wait, true
		if status != http.StatusTooEarly {
			e.Outage = sinks.Troubled
		}
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		e.Class, e.Ambiguous, e.RetryAfter, f.doubt = sinks.Retry, true, wait, true
		e.Outage = sinks.Troubled
	case http.StatusConflict:
		e.Class, e.Ambiguous, e.RetryAfter = sinks.RetryBounded, true, wait
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusProxyAuthRequired:
		e.Class, f.halt = sinks.Pause, true
		e.Hint = "check the secret, the headers and the receiver's permissions"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusMisdirectedRequest:
		e.Class, f.halt = sinks.Pause, true
		e.Hint = "check the URL; the receiver has no such endpoint"
	case http.StatusUnsupportedMediaType, http.StatusUpgradeRequired:
		e.Class, f.halt = sinks.Pause, true
		e.Hint = "the receiver must take POST with application/json"
	default:
		switch {
		case status >= 500:
			e.Class, e.Ambiguous, e.RetryAfter = sinks.RetryBounded, true, wait
			e.Outage = sinks.Troubled
		case status >= 400:
			e.Class = sinks.Reject
		default:
			e.Class, f.halt = sinks.Pause, true
			e.Hint = "redirects are not followed; configure the final URL"
		}
	}
	return f
}

// beginOf reads the begin of an answer; one that breaks off is what came of it.
func beginOf(body io.Reader) []byte {
	var b [sinks.MaxAnswer]byte
	n, _ := io.ReadFull(body, b[:])
	return bytes.Clone(b[:n])
}

// connectionFailure says what an attempt without an answer means. Sent: some
// of the request had left.
func connectionFailure(err error, sent bool) failure {
	// url.Error quotes the URL, which may hold credentials.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	e := &sinks.Error{Class: sinks.Retry, Ambiguous: sent, Op: "post", Outage: sinks.Unreachable, Err: err}
	if sent {
		e.Outage = sinks.Troubled
	}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errDenied):
		e.Class, e.Outage, e.Hint = sinks.Pause, sinks.NoOutage, "the endpoint's address is not public"
	case errors.As(err, &certificate):
		e.Class, e.Outage, e.Hint = sinks.Pause, sinks.NoOutage, "the receiver's certificate is not accepted"
	}
	return failure{err: e, halt: !sent, doubt: sent}
}

// retryAfter reads the header of RFC 9110 section 10.2.3: seconds or an HTTP
// date. What it cannot read, or what has passed, is 0.
func retryAfter(header string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(header, 10, 63); err == nil {
		wait = time.Duration(min(seconds, uint64(maxRetryAfter/time.Second)+1)) * time.Second
	} else if errors.Is(err, strconv.ErrRange) {
		wait = maxRetryAfter
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
