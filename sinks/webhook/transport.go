package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/seed-86dfc502/weir/sinks"
)

// errDenied is in the chain of a connection that DenyPrivate refused.
var errDenied = errors.New("address not allowed")

// connectTimeout bounds connecting and the handshake, each, unless the service's own request
// timeout is shorter.
const connectTimeout = 30 * time.Second

// pingAfter is how long an HTTP/2 connection may be silent before a ping, and again before it is
// closed.
const pingAfter = 15 * time.Second

// newTransport makes the client that services of one target share. It uses only options that are
// in clientKey.
func newTransport(o Options) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{ // without a proxy, which would connect in our place
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        o.connections(),
		MaxIdleConns:           o.connections(),
		MaxIdleConnsPerHost:    o.connections(),
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    connectTimeout,
		MaxResponseHeaderBytes: maxAnswer,
		// A request that times out leaves its connection of HTTP/2 to the next one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	if o.TLS != nil {
		t.TLSClientConfig = o.TLS.Clone()
	}
	if o.DenyPrivate {
		dialer.Control = denyPrivate
	}
	return t
}

// connect makes a connection, with TLS where the URL wants it, and sends nothing.
func (s *Sink) connect(ctx context.Context) error {
	port := cmp.Or(s.url.Port(), map[string]string{"http": "80", "https": "443"}[s.url.Scheme])
	dialer := &net.Dialer{}
	if s.opts.DenyPrivate {
		dialer.Control = denyPrivate
	}
	dial := dialer.DialContext
	if s.url.Scheme == "https" {
		dial = (&tls.Dialer{NetDialer: dialer, Config: s.opts.TLS}).DialContext
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(s.url.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// clientKey identifies a target: the host and the identity of the requests. Paths and
// signatures are of single requests.
func clientKey(o Options, u *url.URL, headers http.Header) string {
	identity := o.TLSIdentity
	if identity == "" {
		identity = fmt.Sprintf("%p", o.TLS)
	}
	user := ""
	if u.User != nil {
		user = u.User.String()
	}
	return sinks.ClientKey("webhook", u.Scheme, strings.ToLower(u.Host), user, headers, o.DenyPrivate, identity, o.connections())
}

// denyPrivate is called with the resolved address, before connecting to it.
func denyPrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return errDenied
	}
	if a := ap.Addr().Unmap(); !public(a) {
		return fmt.Errorf("%w: %v", errDenied, a)
	}
	return nil
}

// public reports whether an address may be anybody's, after the IANA registries
// of special-purpose addresses (RFC 6890).
func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, special := range []string{
		"0.0.0.0/8",     // this network
		"100.64.0.0/10", // carrier-grade NAT
		"192.0.0.0/24",  // protocol assignments
		"198.18.0.0/15", // benchmarking
		"240.0.0.0/4",   // reserved, broadcast
		"::/96",         // IPv4 in the old way
		"64:ff9b::/96",  // NAT64, leads to IPv4
		"64:ff9b:1::/48",
		"2002::/16", // 6to4, leads to IPv4
		"2001::/32", // Teredo, leads to IPv4
		"fec0::/10", // site-local
	} {
		if netip.MustParsePrefix(special).Contains(a) {
			return false
		}
	}
	return true
}
