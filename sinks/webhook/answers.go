package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
)

// statusFailure says what an HTTP status means, as README.md has it. said
// is the receiver's own reason, without parts of the request.
func statusFailure(status int, wait time.Duration, said string) failure {
	if status >= 200 && status < 300 {
		return failure{}
	}
	e := &sinks.Error{Op: "post", Err: fmt.Errorf("the receiver answered %d %s", status, http.StatusText(status))}
	if said != "" {
		e.Err = fmt.Errorf("%w: %q", e.Err, said)
	}
	f := failure{err: e}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusTooEarly:
		e.Class, e.RetryAfter, f.halt = sinks.Retry, wait, true
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		e.Class, e.Ambiguous, e.RetryAfter, f.doubt = sinks.Retry, true, wait, true
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
		case status >= 400:
			e.Class = sinks.Reject
		default:
			e.Class, f.halt = sinks.Pause, true
			e.Hint = "redirects are not followed; configure the final URL"
		}
	}
	if said != "" {
		e.Hint = ""
	}
	return f
}

// said returns the reason in an answer's body: a text, or the first member of a JSON
// object that usually holds it. Pages of HTML hold none.
func said(body []byte) string {
	text := string(bytes.TrimSpace(body))
	if strings.HasPrefix(text, "<") {
		return ""
	}
	if strings.HasPrefix(text, "{") {
		for _, member := range []string{"error.message", "error", "message", "detail", "title"} {
			if v := gjson.Get(text, member); v.Type == gjson.String && v.Str != "" {
				return v.Str
			}
		}
	}
	return text
}

// connectionFailure classifies an attempt without an answer. sent says that part of the request
// was sent, began that part of an answer arrived.
func connectionFailure(err error, sent, began bool) failure {
	e := &sinks.Error{Class: sinks.Retry, Ambiguous: sent, Op: "post", Unreachable: !sent, Err: reason.New(err, connectionWords(err, began), "")}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errDenied):
		e.Class, e.Unreachable, e.Hint = sinks.Pause, false, "the endpoint's address is not public"
	case errors.As(err, &certificate):
		e.Class, e.Unreachable, e.Hint = sinks.Pause, false, "the receiver's certificate is not accepted"
	}
	return failure{err: e, halt: !sent, doubt: sent}
}

// connectionWords describes a failure of the connection. The client library's text quotes
// malformed answers, in which a receiver may repeat the request with its secrets, names
// in certificates, and the URL: only texts that hold nothing from the receiver pass.
func connectionWords(err error, began bool) string {
	var (
		network   *net.OpError
		name      *net.DNSError
		system    syscall.Errno
		alert     tls.AlertError
		plain     tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		timeout   interface{ Timeout() bool }
	)
	switch {
	case errors.Is(err, errTimeout):
		return errTimeout.Error()
	case errors.Is(err, errDenied):
		return errDenied.Error()
	case errors.As(err, &name):
		return "the host's name is not resolved: " + name.Err
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &host):
		return "the certificate is for another host"
	case errors.As(err, &invalid):
		if invalid.Reason == x509.Expired {
			return "the certificate has expired or is not valid yet"
		}
		return "the certificate is not valid"
	case errors.As(err, &alert):
		return alert.Error()
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return "the receiver does not answer with TLS"
	case errors.As(err, &system) && errors.As(err, &network):
		return network.Op + ": " + system.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the connection timed out"
	case began:
		return "the receiver's answer is malformed or incomplete"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the receiver closed the connection without an answer"
	}
	return "the connection failed before an answer"
}

// delay is a number of seconds. RFC 9110 has whole ones alone, receivers write others too.
var delay = regexp.MustCompile(`^\+?(\d+\.?\d*|\.\d+)(e\+?\d+)?( ?s(ec(ond)?s?)?)?$`)

// retryAfter reads the header of RFC 9110 section 10.2.3: seconds or a date. It returns the longest
// wait of several, in whole seconds, rounded up. An unreadable or past one is 0.
func retryAfter(headers []string, now time.Time) time.Duration {
	longest := time.Duration(0)
	for _, header := range headers {
		header = strings.Trim(header, "\" \t")
		if at, ok := parseDate(header); ok {
			longest = max(longest, at.Sub(now))
			continue
		}
		for part := range strings.SplitSeq(strings.ToLower(header), ",") {
			part, _, _ = strings.Cut(part, ";")
			part = strings.TrimSpace(part)
			wait, _ := time.ParseDuration(part) // 0 for another form
			if m := delay.FindStringSubmatch(part); m != nil {
				seconds, _ := strconv.ParseFloat(m[1]+m[2], 64) // infinite for a number that is too large
				wait = time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
			}
			longest = max(longest, wait)
		}
	}
	return (min(longest, maxRetryAfter) + time.Second - 1).Truncate(time.Second)
}

// parseDate reads the three forms of an HTTP date, and those that other standards have.
func parseDate(text string) (time.Time, bool) {
	if at, err := http.ParseTime(strings.Replace(text, " UTC", " GMT", 1)); err == nil {
		return at, true
	}
	for _, layout := range []string{time.RFC1123Z, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
