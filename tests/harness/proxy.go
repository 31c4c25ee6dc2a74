package harness

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Weather is the fault that a proxy adds to its connections.
type Weather struct {
	Cut      bool          // connections are reset, also new ones
	HalfOpen bool          // whatever is sent is swallowed, also the end of a connection
	Latency  time.Duration // of every byte, each way
	Rate     int           // bytes a second, each way; 0: no limit
}

// Proxy passes connections to a server on. Its methods may be called from any
// goroutine.
type Proxy struct {
	listener net.Listener
	upstream string
	running  sync.WaitGroup

	mu      sync.Mutex
	weather Weather
	links   map[*link]bool
	closed  bool
}

// link is one connection through a proxy.
type link struct {
	client, server net.Conn
	forgotten      atomic.Bool // half-open: nothing passes any more, not even the end
	unheard        atomic.Bool // half-open: the client said something since
}

// NewProxy listens at an address, until the test ends, for connections to upstream.
func NewProxy(t testing.TB, listen, upstream string) *Proxy {
	l, err := net.Listen("tcp", listen)
	require.NoError(t, err)
	p := &Proxy{listener: l, upstream: upstream, links: map[*link]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Address is where it listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set changes the weather. Connections that were half-open stay so for the
// client, which is told nothing; the server loses them as when its keepalives
// have run out.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	for l := range p.links {
		switch {
		case w.Cut:
			l.reset()
		case w.HalfOpen:
			l.forgotten.Store(true)
		case l.forgotten.Load():
			_ = l.server.Close()
		}
	}
}

// Unheard counts the connections on which a client waits for an answer that
// will not come.
func (p *Proxy) Unheard() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.unheard.Load() {
			n++
		}
	}
	return n
}

func (p *Proxy) now() Weather {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.connect(client) })
	}
}

// connect serves one client until both ends are gone.
func (p *Proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		abort(client)
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	if p.closed || p.weather.Cut {
		p.mu.Unlock()
		l.reset()
		return
	}
	l.forgotten.Store(p.weather.HalfOpen)
	p.links[l] = true
	p.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, client, server) })
	pumps.Go(func() { p.pump(l, server, client) })
	pumps.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (l *link) reset() {
	abort(l.client)
	abort(l.server)
}

// abort ends a connection with a reset.
func abort(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// parcel is the data of one read.
type parcel struct {
	bytes []byte
	at    time.Time
}

// pump passes on what from sends, and its end.
func (p *Proxy) pump(l *link, from, to net.Conn) {
	queue := make(chan parcel, 256)
	go func() {
		defer close(queue)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				queue <- parcel{buffer[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	for next := range queue {
		w := p.now()
		wait := time.Until(next.at.Add(w.Latency))
		if w.Rate > 0 {
			wait += time.Duration(len(next.bytes)) * time.Second / time.Duration(w.Rate)
		}
		if wait > 0 {
			<-time.After(wait)
		}
		if l.forgotten.Load() {
			if from == l.client {
				l.unheard.Store(true)
			}
			continue
		}
		if _, err := to.Write(next.bytes); err != nil {
			_ = from.Close() // and what is still in the queue fails likewise
		}
	}
	_ = from.Close()
	if !l.forgotten.Load() {
		_ = to.Close()
	}
}
