package recovery

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcome is what becomes of a COMMIT whose connection is cut.
type outcome int

const (
	spared       outcome = iota
	notCommitted         // cut before the COMMIT reaches the server
	committed            // cut after the server did it, before its answer gets back
)

// proxy is in front of a PostgreSQL server and reads the protocol (version 3,
// PostgreSQL manual, "Message Formats"): it knows when a decision that has
// changes, one that inserts into the outbox, is about to commit.
type proxy struct {
	url      string
	target   string
	pipes    sync.WaitGroup
	mu       sync.Mutex
	cut      func(decision int) outcome // guarded by mu; asked at every decision
	decision int                        // guarded by mu
	made     map[outcome]int            // guarded by mu; cuts that happened
}

func newProxy(t *testing.T, location string) *proxy {
	u, err := url.Parse(location)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{target: u.Host, made: map[outcome]int{}, cut: func(int) outcome { return spared }}
	u.Host = listener.Addr().String()
	p.url = u.String()
	p.pipes.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.pipes.Go(func() { p.pipe(client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.pipes.Wait() // the processes have ended by then
	})
	return p
}

// cuts sets what becomes of decisions from now on, numbered from 0.
func (p *proxy) cuts(f func(decision int) outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.decision = f, 0
}

func (p *proxy) happened(o outcome) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made[o]
}

func (p *proxy) next() outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.cut(p.decision)
	p.decision++
	return o
}

func (p *proxy) count(o outcome) {
	p.mu.Lock()
	p.made[o]++
	p.mu.Unlock()
}

// message is one message with its type; the first of a connection has none.
type message struct {
	kind  byte
	whole []byte // with header
	body  []byte
}

func read(r io.Reader, typed bool) (m message, err error) {
	header := make([]byte, 4, 5)
	if typed {
		header = header[:5]
	}
	if _, err = io.ReadFull(r, header); err != nil {
		return m, err
	}
	length := binary.BigEndian.Uint32(header[len(header)-4:])
	if length < 4 || length > 1<<30 {
		return m, errors.New("not the protocol of PostgreSQL")
	}
	m.whole = append(header, make([]byte, length-4)...)
	m.body = m.whole[len(header):]
	if typed {
		m.kind = header[0]
	}
	_, err = io.ReadFull(r, m.body)
	return m, err
}

// words are the first two strings of a Parse (name, text) or a Bind (portal,
// name).
func (m message) words() (string, string) {
	all := strings.SplitN(string(m.body), "\x00", 3)
	if len(all) < 3 {
		return "", ""
	}
	return all[0], all[1]
}

// pipe carries one connection.
func (p *proxy) pipe(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var swallow atomic.Bool // the answer to COMMIT is to get lost
	p.pipes.Go(func() {
		defer client.Close()
		defer server.Close()
		for {
			m, err := read(server, true)
			if err != nil {
				return
			}
			if swallow.Load() && m.kind == 'C' && string(m.body) == "COMMIT\x00" {
				p.count(committed)
				return
			}
			if _, err := client.Write(m.whole); err != nil {
				return
			}
		}
	})
	texts := map[string]string{} // of prepared statements
	changes := false             // the transaction inserts into the outbox
	for typed := false; ; typed = true {
		m, err := read(client, typed)
		if err != nil {
			return
		}
		switch m.kind {
		case 'P':
			name, text := m.words()
			texts[name] = text
		case 'B':
			_, name := m.words()
			switch text := strings.ToUpper(strings.TrimSpace(texts[name])); {
			case strings.HasPrefix(text, "BEGIN"):
				changes = false
			case strings.HasPrefix(text, "INSERT INTO OUTBOX"):
				changes = true
			case text == "COMMIT" && changes:
				switch p.next() {
				case notCommitted:
					p.count(notCommitted)
					return
				case committed:
					swallow.Store(true)
				}
			}
		}
		if _, err := server.Write(m.whole); err != nil {
			return
		}
	}
}
