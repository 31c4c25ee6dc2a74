package api

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// freshConnections closes connections that begin no request in time. net/http does so
// for HTTP/1.1 alone: an HTTP/2 connection may send pieces of a header, or PINGs, for
// as long as a connection may idle.
type freshConnections struct {
	limit time.Duration
	mu    sync.Mutex
	all   map[net.Conn]*freshConnection // guarded by mu
}

type freshConnection struct {
	end    *time.Timer
	active int // how often net/http called it active
}

// track is the http.Server.ConnState of a listener.
func (f *freshConnections) track(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.all[c]
	switch {
	case state == http.StateNew:
		f.all[c] = &freshConnection{end: time.AfterFunc(f.limit, func() { _ = c.Close() })}
		return
	case found == nil:
		return
	case state == http.StateIdle:
		return
	case state == http.StateActive:
		found.active++
		// An HTTP/2 connection is called active once before its first request.
		if t, ok := c.(*tls.Conn); ok && found.active == 1 && t.ConnectionState().NegotiatedProtocol == "h2" {
			return
		}
	}
	found.end.Stop()
	delete(f.all, c)
}
