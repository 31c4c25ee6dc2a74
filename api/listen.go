package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a listener. A client that is slower than these, or larger, loses
// its connection; the others do not notice.
type Limits struct {
	// Header is how long the header of a request may take, and a TLS handshake. A new
	// connection has as long to begin its first request.
	Header time.Duration
	// Read is how long a request may take with its body.
	Read time.Duration
	// Idle is how long a connection waits for its next request.
	Idle time.Duration
	// Patience is how long a client may take to read 64 KiB of an answer.
	Patience time.Duration
	// HeaderBytes is the size of a request's header; net/http allows 4 KiB more.
	HeaderBytes int
	// Connections that are open at a time; later ones wait to be accepted. A process
	// that may have few descriptors accepts fewer, see mostConnections.
	Connections int
}

// mostConnections returns the connections of one listener that leave at least half of
// the process's descriptors to store, sinks and files, beside two listeners.
func mostConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(max(1, min(limit.Cur/4, math.MaxInt32)))
}

// DefaultLimits are the limits of every listener of a process.
var DefaultLimits = Limits{
	Header: 5 * time.Second, Read: time.Minute, Idle: 2 * time.Minute, Patience: 30 * time.Second,
	HeaderBytes: 16 << 10, Connections: 4096,
}

// Bounds of one HTTP/2 connection: bytes that it sends before they are read are in
// memory, outside every budget. Without these a connection may have 250 streams and
// 1 MiB.
const (
	streams          = 64
	streamWindow     = 64 << 10  // bytes
	connectionWindow = 256 << 10 // bytes
)

// ListenOptions of a Listener.
type ListenOptions struct {
	Name    string // for the log
	Address string // host:port
	// Files, if given, make it an HTTPS listener. They are read again when they
	// change, of which Reread hears.
	Files  *Certificates
	Reread func(error)
	Limits Limits
	Logger *slog.Logger
}

// Listener serves HTTP at an address.
type Listener struct {
	server *http.Server
	addr   net.Addr
	done   chan struct{}
}

// Listen starts serving h. It fails when the address is taken or the files are
// wrong.
func Listen(o ListenOptions, h http.Handler) (*Listener, error) {
	var certificates *tls.Config
	if o.Files != nil {
		var err error
		if certificates, err = TLS(*o.Files, o.Reread); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %s: %w", o.Name, o.Address, err)
	}
	l := &Listener{addr: listener.Addr(), done: make(chan struct{}), server: &http.Server{
		Handler: paced(o.Limits.Patience, hardened(unambiguous(h))), ReadHeaderTimeout: o.Limits.Header, ReadTimeout: o.Limits.Read, IdleTimeout: o.Limits.Idle,
		MaxHeaderBytes: o.Limits.HeaderBytes, TLSConfig: certificates,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
			WriteByteTimeout: o.Limits.Patience, // deadlines of streams do not end a write of their connection
		},
		DisableGeneralOptionsHandler: true, // no request passes by h
		// Its messages are about clients: any of them could fill the log.
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}}
	l.server.ConnState = (&freshConnections{limit: o.Limits.Header, all: map[net.Conn]*freshConnection{}}).track
	listener = netutil.LimitListener(listener, min(o.Limits.Connections, mostConnections()))
	go func() {
		defer close(l.done)
		var err error
		if certificates != nil {
			err = l.server.ServeTLS(listener, "", "") // the settings have them
		} else {
			err = l.server.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("listener ended", "event", "api.listener_ended", "listener", o.Name, "error", err)
		}
	}()
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close takes no more connections and waits for requests under way until ctx
// ends; then it cuts their connections. Their handlers may run on.
func (l *Listener) Close(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if err != nil {
		err = l.server.Close() // close clients that are still connected after the grace period
	}
	<-l.done
	return err
}

// hardened serves h with what browsers are to know of every answer: other sites
// do not get it, and where it came by TLS it never comes without.
func hardened(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.TLS != nil {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		h.ServeHTTP(w, r)
	})
}

// unambiguous serves h. Nothing that follows a doubtful request on its
// connection is taken for a request (RFC 9112, section 6.1).
func unambiguous(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ambiguous(r) {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// ambiguous reports whether a proxy in front might see another end of the request than net/http
// does: a request with chunks, where net/http ignores a Content-Length, or HTTP/1.0, where it
// ignores chunks.
func ambiguous(r *http.Request) bool {
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}
